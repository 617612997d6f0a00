from .injection import Distracting as Distracting
from .texts import KINDS as KINDS, Kind as Kind
