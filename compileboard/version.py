"""The package's version, for modules that must not import the package itself."""

VERSION = "0.2.0"
