"""`perdure.server`: an ASGI application with the API, the live events and the console of a runtime.

    app = perdure.server.app(runtime, tokens=perdure.server.TokenFile(path))

This module needs the extra ``perdure[server]``. ``docs/guides/serving.md`` shows whole programs.
"""

from __future__ import annotations

from perdure.apps.server.access.rates import Limits as Limits
from perdure.apps.server.access.tokens import Principal as Principal
from perdure.apps.server.access.tokens import Role as Role
from perdure.apps.server.access.tokens import TokenFile as TokenFile
from perdure.apps.server.access.tokens import TokenRecord as TokenRecord
from perdure.apps.server.access.tokens import Tokens as Tokens
from perdure.apps.server.access.visitors import sign_visitor as sign_visitor
from perdure.apps.server.application import app as app
