"""Deliver runs to a server: the outbox, and the one process per home folder that sends it.

    $COMPILEBOARD_HOME/outbox/RUN/STREAM.json                target; locked by its writer
                              RUN/STREAM.NNNNNNNNNNNN.events lines from that byte on
                              RUN/STREAM.sent               how far the server has it
                              RUN/STREAM.stop               stop reason: restart | deleted
                              RUN/texts/DIGEST[.gz]         long texts
                              RUN/NAME.bundle               stored runs, for server imports
                              sender.lock, sender.json      sending process, its last status
                              sender.wake                   touched to request an immediate try

Standard library only, except `run_bundles`.
"""
