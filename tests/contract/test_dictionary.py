"""The dictionary of stored events: a change would make every database unreadable."""

import hashlib
import re
from pathlib import Path

from compileboard.collectors.store import codec

DICTIONARY = Path(codec.__file__).with_name("dictionary_2.txt")


def test_dictionary_never_changes():
    assert hashlib.sha256(DICTIONARY.read_bytes()).hexdigest() == (
        "a3c2638765bdb08d91ebaefcd9999f593b80f7760eeccf44e05e44b15b4f5131"
    ), (
        "stored bodies need this very dictionary; a better one is a new file with a new first "
        "byte in codec.py"
    )


def test_dictionary_fits_deflate_and_names_no_file_of_a_user():
    text = DICTIONARY.read_text(encoding="ascii")
    assert len(text) <= 16_384
    paths = set(re.findall(r"(?<![\w.])/[\w.+-]+(?:/[\w.+-]+)+\.py", text))
    assert {
        path
        for path in paths
        if not path.startswith(("/usr/local/lib/python3.12/", "/home/user/project/"))
    } == {path for path in paths if re.match(r"/(?:_dynamo|nn|utils|variables)/", path)}


def test_primed_packing_round_trips_and_is_small():
    body = DICTIONARY.read_text(encoding="ascii")[4000:6000]
    packed = codec.pack(body)
    assert codec.unpack(packed) == body
    assert len(packed) < len(codec.pack(body, primed=False)) / 5
