"""OpenAI-compatible HTTP over any engine that implements `pagoda.engine.api`."""

from pagoda.serve.app import create_app
from pagoda.serve.config import ServeConfig
from pagoda.serve.server import Server, bind, run_server

__all__ = ["ServeConfig", "Server", "bind", "create_app", "run_server"]
