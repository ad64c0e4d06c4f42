"""Repros: run again, judged, minimised and taken apart, each in processes of their own. torch is imported there."""
