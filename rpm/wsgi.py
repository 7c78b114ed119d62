"""HTTP for any number of WSGI workers."""

import gc
import os

from django.core.wsgi import get_wsgi_application
from django.utils.module_loading import import_string

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "rpm.settings")

_django = get_wsgi_application()
# Only now, as it needs the models, which are there once Django is set up.
application = import_string("apps.tasks.api.fast_path.with_fast_path")(_django)

# What is loaded by now stays: collections need not look through it while pages are made.
gc.collect()
gc.freeze()
