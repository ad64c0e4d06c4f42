"""The protocol between clients and the server: lines of a stream, and long texts by digest.

A stream has one recorder's data of one run as append-only lines of JSON: events (`lines.py`) and
marks (`marks.py`). Its position is in bytes, always at a line's end. A restarted recorder sends
everything in a new stream, which adds nothing. An invalid line is counted as a reject.

Requests, all below `/api/v1`, with `Authorization: Bearer`; `Upload-Checksum` is `crc32 HEX` of
plain bytes:

    HEAD  runs/RUN/streams/STREAM   200; Upload-Offset: stored bytes, with their Upload-Checksum
    PATCH runs/RUN/streams/STREAM   whole lines from Upload-Offset on, plain or gzip, with
                                    Upload-Checksum; 204 with the new Upload-Offset when stored;
                                    known bytes are skipped
    POST  texts/missing             {"digests": […], "run": RUN, "dropped": […]}:
                                    {"data": {"missing": […]}}, which the server lacks; the
                                    client no longer has `dropped`: lines are stored without
    PUT   texts/DIGEST              a text, plain or gzip: 201, or 200 if known
    POST  texts                     several texts (`texts.py`): 204

    400 no whole lines, or header   401 no valid token    403 token of another scope or stream
    409 a gap: continue at Upload-Offset; {"missing": […]}: texts first; {"restart": true}: the
        stored stream differs and is forgotten: send all in a new stream
    410 deleted or pruned           413 too large     426 newer line: upgrade the server
    429 and 503 with Retry-After    460 checksum differs: send again      507 disk full

Imported by clients: standard library only.
"""
