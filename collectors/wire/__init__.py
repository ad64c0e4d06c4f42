"""What travels from a box to a server: lines of a stream, and long texts by their content.

A stream is what one recorder has to tell of one run, as lines of JSON that are only ever appended: events (`lines.py`)
and marks (`marks.py`). Its place on the server is a number of bytes, always at the end of a line. A recorder that
starts anew begins a new stream and tells everything again, which adds nothing. A line that is no event is one record
lost, counted among the run's rejects; the stream goes on behind it.

Requests, all below `/api/v1`, with `Authorization: Bearer`; `Upload-Checksum` is `crc32 HEX`, of plain bytes:

    HEAD  runs/RUN/streams/STREAM   200; Upload-Offset: bytes that are stored, Upload-Checksum: of these
    PATCH runs/RUN/streams/STREAM   whole lines from Upload-Offset on, plain or gzip, with their Upload-Checksum;
                                    204 once they are stored, with the new Upload-Offset; what is there is skipped
    POST  texts/missing             {"digests": […], "run": RUN, "dropped": […]}: {"data": {"missing": […]}}, which of
                                    these the server lacks; `dropped` are those that the box has no more: what refers
                                    to them is stored without
    PUT   texts/DIGEST              a text, plain or gzip: 201, or 200 if it was there
    POST  texts                     several texts (`texts.py`): 204; a server that answers 404 takes them one by one

    400 no whole lines, or header   401 no token, or none that is valid    403 token of another scope or another stream
    409 a gap: Upload-Offset tells where to go on; {"missing": […]}: texts first; {"restart": true}: what is there is
        not what the box has, and is forgotten: everything again, under a new stream
    410 deleted or pruned           413 too large     426 a line of a newer version: upgrade the server
    429 and 503 with Retry-After    460 the body is not what its checksum tells: send it again      507 disk full

Imported on boxes: the standard library alone.
"""
