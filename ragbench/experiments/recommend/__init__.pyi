from .advice import (
    LEAST as LEAST,
    Advice as Advice,
    Arm as Arm,
    Difference as Difference,
    recommend as recommend,
)
from .answers import (
    Asked as Asked,
    Limits as Limits,
    gather as gather,
)
from .conclusion import (
    conclusion as conclusion,
)
from .policies import (
    make_policy as make_policy,
)
