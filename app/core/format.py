"""Numbers with units for people. Values that torch did not record are "not recorded", never 0."""

from __future__ import annotations

from datetime import datetime, timezone

NOT_RECORDED = "not recorded"
_BYTES = ("B", "KiB", "MiB", "GiB", "TiB")


def format_duration(microseconds: float | None) -> str:
    """Format microseconds: `850 µs`, `12.3 ms`, `4.56 s`, `3 min 12 s`, `2 h 05 min`."""
    if microseconds is None:
        return NOT_RECORDED
    if microseconds < 0:
        return "−" + format_duration(-microseconds)
    if round(microseconds) < 1000:
        return f"{round(microseconds)} µs"
    for divisor, unit in ((1e3, "ms"), (1e6, "s")):
        value = microseconds / divisor
        if value < (999.5 if unit == "ms" else 59.95):
            return f"{_format_three_digits(value)} {unit}"
    seconds = round(microseconds / 1e6)
    if seconds < 3600:
        return f"{seconds // 60} min {seconds % 60:02d} s"
    minutes = round(seconds / 60)
    if minutes < 48 * 60:
        return f"{minutes // 60} h {minutes % 60:02d} min"
    return f"{minutes / 1440:.1f} d"


def format_bytes(size: float | None) -> str:
    """Format bytes: `512 B`, `1.50 KiB`, `79.2 GiB`."""
    if size is None:
        return NOT_RECORDED
    value, unit = float(size), 0
    while abs(value) >= 1024 and unit < len(_BYTES) - 1:
        value, unit = value / 1024, unit + 1
    return f"{round(value)} B" if unit == 0 else f"{_format_three_digits(value)} {_BYTES[unit]}"


def format_count(number: float | None) -> str:
    return NOT_RECORDED if number is None else f"{number:,.0f}".replace("-", "−")


def format_number(number: float | None) -> str:
    if number is None:
        return NOT_RECORDED
    if float(number).is_integer() and abs(number) < 1e15:
        return format_count(number)
    return f"{number:.4g}"


def format_ratio(ratio: float | None) -> str:
    """Format as `1.37×`."""
    return NOT_RECORDED if ratio is None else f"{ratio:.2f}×"


def format_percent(share: float | None) -> str:
    """Format a share of 1 as `12.5%`."""
    return NOT_RECORDED if share is None else f"{100 * share:.1f}%"


def format_time(microseconds: int | None) -> str:
    """Format microseconds since the epoch in UTC: `2026-11-21 07:37:05`."""
    if microseconds is None:
        return NOT_RECORDED
    moment = _to_utc(microseconds)
    return moment.strftime("%Y-%m-%d %H:%M:%S") if moment else f"{format_number(microseconds)} µs"


def format_day(microseconds: int, now_us: int) -> str:
    """Format microseconds since the epoch as `15 Nov`, with the year if it is not this one."""
    moment, today = _to_utc(microseconds), _to_utc(now_us)
    if moment is None or today is None:
        return format_time(microseconds)
    return f"{moment.day} {moment:%b}" + (f" {moment.year}" if moment.year != today.year else "")


def format_times(begun_us: int | None, ended_us: int | None) -> tuple[str, str]:
    begun, ended = format_time(begun_us), format_time(ended_us)
    return (begun, ended) if begun[:16] == ended[:16] else (begun[:16], ended[:16])


def format_iso_time(microseconds: int | None) -> str:
    """Format microseconds since the epoch for <time datetime> and exports; '' for None."""
    moment = None if microseconds is None else _to_utc(microseconds)
    return moment.isoformat().replace("+00:00", "Z") if moment else ""


def format_plural(number: int, singular: str, many: str = "") -> str:
    """Format as `1 run` or `12 runs`."""
    return f"{format_count(number)} {singular if number == 1 else many or singular + 's'}"


def _format_three_digits(value: float) -> str:
    return f"{value:.2f}" if value < 9.995 else f"{value:.1f}" if value < 99.95 else f"{value:.0f}"


def _to_utc(microseconds: int) -> datetime | None:
    try:
        return datetime.fromtimestamp(microseconds / 1e6, timezone.utc)
    except (ValueError, OverflowError, OSError):
        return None
