// The shape of a step that periods.hpp can run: download everything, compute, upload, update. Downloads may be parsed
// by the host before computation has them.
//
// Recorded steps have two ops more: the "opening", which the worker does before it asks for any parameter, and the
// "closing", which waits for everything else, as TensorFlow's train op does.
#pragma once
#include <algorithm>
#include <cstdint>
#include <span>
#include <vector>

#include "feeders.hpp"
#include "inputs.hpp"

namespace planner {

struct TrainingStep {
  bool fits = false;
  int32_t opening = -1, closing = -1;  // none

  // `feeders`: of all ops, as they are known already.
  TrainingStep(const Inputs& in, const Feeders& feeders) {
    find_ends(in);
    int downloads = 0, uploads = 0;
    for (int32_t op = 0; op < in.ops; ++op) {
      int resource = in.resource[op];
      downloads += resource == DOWNLINK;
      uploads += resource == UPLINK;
      if (resource == DOWNLINK && in.waiting[op] != (opening >= 0)) return;
      if (resource != DOWNLINK && resource != WORKER && in.waiting[op] == 0) return;
      for (int32_t dependent : in.dependents(op)) {
        int to = in.resource[dependent];
        bool known = resource == DOWNLINK ? to == WORKER || to == HOST
                     : resource == HOST   ? to == WORKER
                     : resource == WORKER ? to == WORKER || to == UPLINK
                                          : to == PS && in.server[op] == in.server[dependent];
        if (op == opening ? to != WORKER && to != DOWNLINK : !known && dependent != closing) return;
      }
    }
    fits = downloads > 0 && uploads > 0 &&
           needs_all(in, opening < 0 ? feeders.required : Feeders(in, opening).required);
  }

 private:
  // Does all that others can see depend on every download, directly or through the host, and on all that the host does?
  static bool needs_all(const Inputs& in, const std::vector<uint8_t>& required) {
    for (int32_t op = 0; op < in.ops; ++op) {
      if (in.resource[op] == HOST && !required[op]) return false;
      if (in.resource[op] != DOWNLINK || required[op]) continue;
      if (std::ranges::none_of(in.dependents(op), [&in](int32_t to) { return in.resource[to] == HOST; })) return false;
    }
    return true;
  }
  void find_ends(const Inputs& in) {
    auto is_on = [&in](int resource) { return [&in, resource](int32_t op) { return in.resource[op] == resource; }; };
    if (in.roots.size() == 1 && in.resource[in.roots[0]] == WORKER)
      if (std::ranges::any_of(in.dependents(in.roots[0]), is_on(DOWNLINK))) opening = in.roots[0];
    int32_t last = -1, sinks = 0;
    for (int32_t op = 0; op < in.ops; ++op)
      if (in.dependents(op).empty()) last = op, ++sinks;
    if (sinks != 1 || in.resource[last] != WORKER) return;
    for (int32_t op = 0; op < in.ops; ++op)
      if (in.resource[op] != WORKER && std::ranges::count(in.dependents(op), last) > 0) closing = last;
  }
};

}  // namespace planner
