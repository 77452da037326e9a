"""From the operating system's error numbers to the error tree."""

from __future__ import annotations

import errno
from collections.abc import Iterator
from contextlib import contextmanager

from pagoda.core.errors import TierFault, TierFull, TierReadOnly, TierTimeout

_FULL = {errno.ENOSPC, errno.EDQUOT, errno.EFBIG}
_READ_ONLY = {errno.EROFS, errno.EPERM, errno.EACCES}
_WRONG_PATH = {
    errno.EEXIST,
    errno.EISDIR,
    errno.ELOOP,
    errno.ENAMETOOLONG,
    errno.ENOENT,
    errno.ENOTDIR,
}


@contextmanager
def typed_errors(tier: str, what: str) -> Iterator[None]:
    """Turn an OSError raised inside into the TierError of its kind; `what` says of which file."""
    try:
        yield
    except OSError as error:
        message = f"{what}: {error.strerror or error}"
        if error.errno in _FULL:
            raise TierFull(
                message, tier=tier, remedy="free space, or lower drive.capacity"
            ) from error
        if error.errno in _READ_ONLY:
            raise TierReadOnly(
                message, tier=tier, remedy="give this user read and write access to it"
            ) from error
        if error.errno == errno.ETIMEDOUT:
            raise TierTimeout(message, tier=tier, deadline_s=0.0) from error
        wrong_path = error.errno in _WRONG_PATH
        remedy = "choose another path" if wrong_path else "see the system's log for this drive"
        raise TierFault(message, tier=tier, errno=error.errno, remedy=remedy) from error
