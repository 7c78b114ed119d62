"""`python -m rpm_client` is `rpmctl`."""

from rpm_client.cli.app import main

main()
