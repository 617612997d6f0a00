from .serve import KEY_VARIABLE as KEY_VARIABLE
from .server import (
    LocalServer as LocalServer,
    server_version as server_version,
    settings_for as settings_for,
    shared_server as shared_server,
)
from .store import (
    CATALOGUE as CATALOGUE,
    DEFAULT_EMBEDDER as DEFAULT_EMBEDDER,
    DEFAULT_LM as DEFAULT_LM,
    LocalSpec as LocalSpec,
    cache_root as cache_root,
    ensure as ensure,
    find as find,
    installed_models as installed_models,
    is_installed as is_installed,
    paths as paths,
    sha256_of as sha256_of,
)
