"""stdout and stderr hold Rooftile's words, not those of the libraries that it drives."""

from __future__ import annotations

import logging
import os
import sys
import warnings
from collections.abc import Iterator
from contextlib import contextmanager

# Library: the environment variable by which a user asks for its log.
_LIBRARIES = {
    "torch": "TORCH_LOGS",
    "transformers": "TRANSFORMERS_VERBOSITY",
    "huggingface_hub": "HF_HUB_VERBOSITY",
}


@contextmanager
def quiet() -> Iterator[None]:
    """Keep warnings and the libraries' logs back while it lasts, unless the user asks for them.

    Fake tensors log each op that a model tries in vain, with a traceback; torch, its compiler and
    transformers warn of what is slow or old. Asked for by ``-W`` or ``PYTHONWARNINGS``, and by the
    libraries' own variables. Logs of the user's own code are the user's.
    """
    # read when torch is loaded: what its C++ parts write past Python
    os.environ.setdefault("TORCH_CPP_LOG_LEVEL", "ERROR")
    silent = {name for name, variable in _LIBRARIES.items() if not os.environ.get(variable)}
    make = logging.getLogRecordFactory()

    def record(name: str, *args: object, **options: object) -> logging.LogRecord:
        made: logging.LogRecord = make(name, *args, **options)
        if name.partition(".")[0] in silent:
            made.levelno = -1  # below what any handler takes: a library sets its handlers up late
        return made

    logging.setLogRecordFactory(record)
    try:
        with warnings.catch_warnings():
            if not sys.warnoptions:
                warnings.simplefilter("ignore")
            yield
    finally:
        logging.setLogRecordFactory(make)
