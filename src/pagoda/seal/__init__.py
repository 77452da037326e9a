"""Headers, digests, codecs and encryption over bytes; reads nothing but key files."""
