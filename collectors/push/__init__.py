"""Deliver runs to a server: what waits in the outbox, and the one process a home that sends it.

    $COMPILEBOARD_HOME/outbox/RUN/STREAM.json                where a stream goes; locked by its writer until it is gone
                              RUN/STREAM.NNNNNNNNNNNN.events its lines from that byte on
                              RUN/STREAM.sent               how far the server has it
                              RUN/STREAM.stop               why nothing more of it is to be written: restart | deleted
                              RUN/texts/DIGEST[.gz]         long texts
                              RUN/NAME.bundle               runs of a database, for the server's imports
                              sender.lock, sender.json      the process that sends, and what it met last
                              sender.wake                   touched by who wants a try at once

The standard library alone, in every module but `run_bundles`.
"""
