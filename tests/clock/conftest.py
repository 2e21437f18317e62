from tests.proofs.fixtures import *  # noqa: F403 - fixtures that two folders share
