"""`pagoda lab crash`: processes killed and power cut at every write, and what came back.

Every operation on a drive's file passes tap.TappedFile, so that a killer (kills) or a recorder
(cuts) sees it. The promise that is checked stands in ledger, apart from the code that keeps it.

Not covered: threads that run I/O at once (tests/crash/test_kill.py kills those), damage to what
was durable, and crashes of the file system itself: an image is one slab file.
"""
