"""Styles and scripts of the pages: collecting them, and whether they can be served."""

import os
from pathlib import Path

from django.conf import settings
from django.core.management import CommandError, call_command
from django.http import HttpResponse
from django.test import RequestFactory
from whitenoise.middleware import WhiteNoiseMiddleware  # type: ignore[import-untyped]  # has none

# Every page needs it, and every build changes it with the templates.
STYLES = "dist/app.css"


def static_collect() -> str:
    """Copy the static files to where they are served from, and say where they are.

    Empty where they are served from the repository. In an image the folder is read-only and its
    content was collected when the image was built.

    Raises:
        CommandError: the folder cannot be made, or holds another version and cannot be written.
    """
    if settings.WHITENOISE_USE_FINDERS:
        return ""
    root: Path = settings.STATIC_ROOT
    try:
        root.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise CommandError(f"RPM_STATIC_ROOT={root} cannot be made: {error.strerror}.") from error
    if os.access(root, os.W_OK):
        for path in root.rglob("*"):
            if path.is_file():
                # Django keeps what is newer than its source, as files of a later version are.
                os.utime(path, (0, 0))
        call_command("collectstatic", interactive=False, verbosity=0)
    elif _content(root / STYLES) != _content(_source()):
        raise CommandError(
            f"RPM_STATIC_ROOT={root} cannot be written to by this account, and what is in it is "
            "not of this version."
        )
    return f"Static files are in {root}."


def static_problem() -> str:
    """What is wrong with the page styles as a web process serves them; empty where nothing is."""
    request = RequestFactory().get(f"/{settings.STATIC_URL.strip('/')}/{STYLES}")
    response = WhiteNoiseMiddleware(lambda _: HttpResponse(status=404))(request)
    content = b"".join(response) if response.status_code == 200 else b""
    response.close()
    built = _content(_source())
    if not content:
        return f"{request.path} is not served"
    if built and content != built:
        return f"{request.path} is served as another version built it"
    return ""


def _source() -> Path:
    return Path(settings.BASE_DIR) / "static" / STYLES


def _content(path: Path) -> bytes:
    return path.read_bytes() if path.is_file() else b""
