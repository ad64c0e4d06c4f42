"""Remove secrets from environments, command lines and git remotes.

They are recognised by name (API_KEY=…, --token …) and by pattern (ghp_…, hf_…, a URL's password).
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping

WITHHELD = "<withheld>"
SOURCE_WITHHELD = "<source withheld"


def can_run_again(source: str, command: str | None) -> bool:
    """Return whether a recorded command is complete; an imported log has none."""
    parts = (WITHHELD, SOURCE_WITHHELD)
    return (
        source in ("live", "bench")
        and bool(command)
        and not any(part in str(command) for part in parts)
    )


_SECRET_NAME = re.compile(
    r"(?i)(secret|token(?!s|iz)|passw|passphrase|pwd$|api[_-]?key|access[_-]?key|private[_-]?key|credential|auth(?!or)"
    r"|cookie|session"
    r"|signature|dsn$|[._-]key$|bearer|webhook|connection[_-]?string)"
)
_PLACE_NAME = re.compile(
    r"(?i)[._-](?:file|path|dir)$"
)  # --token-file names a file, not the secret
_SECRET_SHAPE = re.compile(
    r"cb_[0-9a-f]{10}_[0-9a-f]{16,}|gh[pousr]_\w{20,}|github_pat_\w{20,}|glpat-[\w-]{16,}|hf_[A-Za-z0-9]{16,}|sk-[\w-]{16,}|xox[abprs]-[\w-]{8,}"
    r"|AKIA[0-9A-Z]{12,}|ASIA[0-9A-Z]{12,}|AIza[\w-]{30,}|ya29\.[\w-]{20,}|npm_\w{30,}|pypi-[\w-]{16,}"
    r"|eyJ[\w-]{8,}\.[\w-]{8,}\.[\w-]*|-----BEGIN[^-]+PRIVATE "
    r"KEY-----[\s\S]*?(-----END[^-]+-----|$)"
)
_URL_LOGIN = re.compile(r"(?i)\b([a-z][a-z0-9+.-]*://)[^/\s@]+@")
_URL_QUERY = re.compile(
    r"(?i)([?&][\w.-]*(?:token|key|secret|sig|signature|password|auth|credential)[\w.-]*=)[^&\s#]+"
)
_HEADER = re.compile(
    r"(?i)\b((?:authorization|proxy-authorization|cookie|x-api-key)\s*[:=]\s*)[^\r\n'\"]+"
)
_ASSIGNMENT = re.compile(r"(-{0,2}[A-Za-z_][\w.-]*)([=:])(.+)", re.DOTALL)
# Inside a shell line or a program's text: TOKEN=…, api_key = '…', --token …
_NAMED = (
    r"[\w.-]*(?:secret|token(?!s|iz)|passw|passphrase|api[_-]?key|access[_-]?key|private[_-]?key|credential)[\w.-]*"
    r"(?<![._-]file)(?<![._-]path)(?<![._-]dir)"
)
_VALUE = r"(?:'[^']*'|\"[^\"]*\"|[^\s;&|)]+)"
_INNER_ASSIGNMENT = re.compile(rf"(?i)(?<![\w.-])({_NAMED}\s?=\s?)(?!=){_VALUE}")
_INNER_OPTION = re.compile(rf"(?i)(?<!\S)(-{_NAMED}\s+)(?!-){_VALUE}")
_BEARER = re.compile(r"(?i)\b(bearer|basic)\s+[\w.+/=-]{8,}")


def scrub_text(text: str) -> str:
    text = _URL_LOGIN.sub(rf"\1{WITHHELD}@", text)
    text = _URL_QUERY.sub(rf"\1{WITHHELD}", text)
    text = _HEADER.sub(rf"\1{WITHHELD}", text)
    text = _INNER_ASSIGNMENT.sub(rf"\1{WITHHELD}", text)
    text = _INNER_OPTION.sub(rf"\1{WITHHELD}", text)
    text = _BEARER.sub(rf"\1 {WITHHELD}", text)
    return _SECRET_SHAPE.sub(WITHHELD, text)


def is_secret_name(name: str) -> bool:
    return _SECRET_NAME.search(name) is not None and _PLACE_NAME.search(name) is None


def scrub_argv(argv: Iterable[str]) -> list[str]:
    """Withhold the values of secret options (`--token X`, `--token=X`, `API_KEY=X`), and secrets by
    pattern.
    """
    clean: list[str] = []
    withhold_next = False
    for argument in argv:
        if withhold_next and not argument.startswith("--"):
            clean.append(WITHHELD)
            withhold_next = False
            continue
        withhold_next = False
        match = _ASSIGNMENT.fullmatch(argument)
        if match and is_secret_name(match[1].lstrip("-")):
            clean.append(f"{match[1]}{match[2]}{WITHHELD}")
            continue
        if argument.startswith("-") and not match and is_secret_name(argument.lstrip("-")):
            withhold_next = True
        clean.append(scrub_text(argument))
    return clean


def scrub_environment(environment: Mapping[str, str], names: Iterable[str] = ()) -> dict[str, str]:
    selected = set(names)
    stored = {
        name: value
        for name, value in sorted(environment.items())
        if name.startswith(PREFIXES) or name in ALWAYS or name in selected
    }
    return scrub_values(stored)


def scrub_values(values: Mapping[str, str]) -> dict[str, str]:
    return {
        name: WITHHELD if is_secret_name(name) else scrub_text(value)
        for name, value in values.items()
    }


PREFIXES = ("TORCH", "PYTORCH_")
ALWAYS = frozenset(
    {
        "CUDA_VISIBLE_DEVICES",
        "CUDA_LAUNCH_BLOCKING",
        "OMP_NUM_THREADS",
        "TRITON_CACHE_DIR",
        "LOCAL_WORLD_SIZE",
    }
)
