"""Make the dictionary that event bodies are compressed with.

    python -m benchmarks.package_data.dictionary SOURCE…

Sources are recorded logs and spools, or folders of them. Without `--write` it only tells what a new
dictionary would give. A dictionary in use can never change: bodies written with it need it to be
read; a better one is a new file.

The method is COVER's (Liao, Petri, Moffat, Wirth: Effective construction of relative Lempel-Ziv
dictionaries, 2016): cut the samples into as many stretches as segments fit, and take from each the
segment whose 8-byte strings are in most samples and in no segment yet. Only strings that occur in
several sources count, so that nothing of one program's own gets in; folders and numbers that tell a
machine or a moment are replaced before.
"""

from __future__ import annotations

import argparse
import re
import statistics
import sys
import zlib
from collections import Counter, defaultdict
from pathlib import Path

from benchmarks.common import ROOT, Row, print_table
from benchmarks.store.recordings import find_sources, read_recording
from compileboard.collectors.contract.events import ConfigSeen, dump_event

TARGET = ROOT / "collectors" / "store" / "dictionary_2.txt"
SIZE_BYTES = 16_384
GRAM = 8
SEGMENTS = (128, 256, 384, 512)

_FILE = re.compile(r"(?:[\w.+-]*/)*[\w.+-]+\.py\b")
_LIBRARY = re.compile(
    r"(?:^|.*/)(?:site|dist)-packages/|^/?(?=(?:torch|torchvision|transformers)/)"
)
_OTHER: tuple[tuple[re.Pattern[str], str], ...] = (
    (re.compile(r'"process_id":"[^"]*"'), '"process_id":"#"'),
    (re.compile(r"\b[0-9a-f]{12,64}\b"), "#"),
    (re.compile(r"\b\d{6,}(?:\.\d+)?\b"), "#"),
    (re.compile(r"\b\d+\.\d{4,}\b"), "#"),
)


def read_samples(sources: list[Path]) -> dict[str, list[str]]:
    """Return each source's event bodies with what is its own made general."""
    samples = {}
    for source in sources:
        events = [
            event
            for event in read_recording(source, every_kind=True).events
            if not isinstance(event, ConfigSeen)
        ]
        samples[str(source)] = [make_general(dump_event(event)) for event in events]
    return samples


def make_general(body: str) -> str:
    """Replace the names of files, hashes, times and long numbers."""
    body = _FILE.sub(_general_file, body)
    for pattern, general in _OTHER:
        body = pattern.sub(general, body)
    return body


def _general_file(match: re.Match[str]) -> str:
    """Return a library's file under the usual folder; the user's own files get one name."""
    path = match.group()
    library = _LIBRARY.match(path)
    if library is None:
        return "/home/user/project/model.py" if path.startswith("/") else "model.py"
    return (
        f"/usr/local/lib/python3.12/site-packages/{path[library.end() :]}"
        if path.startswith("/")
        else path
    )


def count_grams(samples: dict[str, list[str]]) -> Counter[bytes]:
    """Count in how many samples each 8-byte string is, of those that are in several sources."""
    seen_in: defaultdict[bytes, set[str]] = defaultdict(set)
    counts: Counter[bytes] = Counter()
    for source, bodies in samples.items():
        for body in bodies:
            for gram in set(grams_of(body.encode())):
                seen_in[gram].add(source)
                counts[gram] += 1
    return Counter({gram: count for gram, count in counts.items() if len(seen_in[gram]) > 1})


def grams_of(text: bytes) -> list[bytes]:
    """List the 8-byte strings of a text, one for each place."""
    return [text[position : position + GRAM] for position in range(len(text) - GRAM + 1)]


def choose_segments(corpus: bytes, counts: Counter[bytes], length: int) -> bytes:
    """Choose the best segment of each stretch; the best of all come last, where matches are
    cheapest.
    """
    counts = Counter(counts)
    stretches = max(1, SIZE_BYTES // length)
    width = max(length, len(corpus) // stretches)
    chosen: list[tuple[int, bytes]] = []
    size = 0
    while size < SIZE_BYTES:
        chosen_count = 0
        for start in range(0, len(corpus) - length, width):
            score, segment = _best_segment(corpus[start : start + width], counts, length)
            if not score or size >= SIZE_BYTES:
                continue
            chosen_count += 1
            segment = segment[: SIZE_BYTES - size]
            chosen.append((score, segment))
            size += len(segment)
            for gram in grams_of(segment):
                counts[gram] = 0
        if not chosen_count:
            break
    return b"".join(segment for _, segment in sorted(chosen, key=lambda pair: pair[0]))


def _best_segment(stretch: bytes, counts: Counter[bytes], length: int) -> tuple[int, bytes]:
    """Return the segment with the highest sum of counts, each string counted once, without its
    worthless ends.
    """
    grams = grams_of(stretch)
    inside: Counter[bytes] = Counter()
    window = length - GRAM + 1
    score = best = best_at = 0
    for position, gram in enumerate(grams):
        if not inside[gram]:
            score += counts[gram]
        inside[gram] += 1
        if position >= window:
            left = grams[position - window]
            inside[left] -= 1
            if not inside[left]:
                score -= counts[left]
        if score > best:
            best, best_at = score, max(0, position - window + 1)
    worthy = [
        position
        for position in range(best_at, min(best_at + window, len(grams)))
        if counts[grams[position]] > 1
    ]
    if not worthy:
        return 0, b""
    return best, stretch[worthy[0] : worthy[-1] + GRAM]


def packed_sizes(samples: dict[str, list[str]], dictionary: bytes) -> list[int]:
    """Return each sample's compressed size with a dictionary."""
    sizes = []
    for bodies in samples.values():
        for body in bodies:
            compressor = zlib.compressobj(6, zdict=dictionary)
            sizes.append(1 + len(compressor.compress(body.encode()) + compressor.flush()))
    return sizes


def make_dictionary(samples: dict[str, list[str]]) -> bytes:
    """Make a dictionary of each segment length and return the one that packs the samples
    smallest.
    """
    counts = count_grams(samples)
    corpus = b"\n".join(body.encode() for bodies in samples.values() for body in bodies)
    made = [choose_segments(corpus, counts, length) for length in SEGMENTS]
    return min(made, key=lambda dictionary: sum(packed_sizes(samples, dictionary)))


def held_out(samples: dict[str, list[str]]) -> tuple[int, int]:
    """Pack each third source with a dictionary made of the others: (bytes with it, bytes with
    none).
    """
    names = sorted(samples)
    tested = {name: samples[name] for name in names[::3]}
    rest = {name: samples[name] for name in names if name not in tested}
    return sum(packed_sizes(tested, make_dictionary(rest))), sum(packed_sizes(tested, b"{}"))


def main(argv: list[str] | None = None) -> int:
    """Print what a new dictionary would save, and write it if asked to."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.package_data.dictionary", description=__doc__
    )
    parser.add_argument("sources", nargs="*", type=Path, metavar="SOURCE")
    parser.add_argument("--write", action="store_true", help=f"write {TARGET.relative_to(ROOT)}")
    arguments = parser.parse_args(argv)
    samples = read_samples(find_sources(arguments.sources))
    dictionary = make_dictionary(samples)
    without, now, new = (packed_sizes(samples, d) for d in (b"{}", TARGET.read_bytes(), dictionary))
    unseen, unseen_without = held_out(samples)
    mean = statistics.fmean
    print_table(
        f"Event bodies packed, mean bytes of {len(new)} events",
        [
            Row(
                "the dictionary in use",
                f"{mean(now):.0f}",
                f"{mean(without):.0f}",
                f"{sum(now) / sum(without):.2f}",
            ),
            Row(
                "a new one",
                f"{mean(new):.0f}",
                f"{mean(without):.0f}",
                f"{sum(new) / sum(without):.2f}",
            ),
            Row(
                "a new one, on sources it was not made of", "", "", f"{unseen / unseen_without:.2f}"
            ),
        ],
        "Reference: the same without a dictionary.",
    )
    if arguments.write:
        TARGET.write_bytes(dictionary)
        print(f"wrote {TARGET.relative_to(ROOT)}: {len(dictionary)} bytes")
    return 0


if __name__ == "__main__":
    sys.exit(main())
