-- Version 7: what was refused, what failed while it ran, what a program may have lost to its stack, and what was deleted.

-- == rejects of runs, and what a run could not be recorded for ==
--
--

-- == trace logs: envelope keys, stacks, record counts ==
--
--

-- == failures while compiled code runs ==
--
--

-- == page faults and stack room ==
--
--

-- == deleted runs that can be restored, who did what, the import queue ==
--
--

