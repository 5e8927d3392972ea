import sys, types
try:
    import rooftile.capture.aten
except ImportError:
    m=types.ModuleType('rooftile.capture.aten'); m.ATEN={}; sys.modules['rooftile.capture.aten']=m
