// Python bindings of the event engine.
#include <nanobind/nanobind.h>

namespace nb = nanobind;

NB_MODULE(_engine, m) { m.doc() = "Event engine of planner's simulator"; }
