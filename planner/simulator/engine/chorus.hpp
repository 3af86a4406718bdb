// What all workers compute, where every worker runs the same ops one after the other: when each worker is through with
// the op that they are at.
//
// An op begins at a worker when the worker has ended the op before, and not before what all workers wait for together:
// two vectors of times, and one pass over them for each op.
#pragma once
#include <algorithm>
#include <cstdint>
#include <vector>

#include "events.hpp"
#include "steps.hpp"

namespace planner {

// The ops that workers compute, if dependencies leave one order only, whichever way the other ops go; else none.
inline std::vector<int32_t> only_order(const Inputs& in) {
  std::vector<int32_t> waiting(in.waiting.begin(), in.waiting.end()), order, computes, others;  // that are ready
  auto ready = [&](int32_t op) { (in.resource[op] == WORKER ? computes : others).push_back(op); };
  std::ranges::for_each(in.roots, ready);
  while (!others.empty() || !computes.empty()) {
    if (others.empty()) {
      if (computes.size() > 1) return {};
      order.push_back(computes[0]);
      others.swap(computes);
    }
    int32_t op = others.back();
    others.pop_back();
    for (int32_t dependent : in.dependents(op))
      if (--waiting[dependent] == 0) ready(dependent);
  }
  return order;
}

class Chorus {
 public:
  Chorus(const Inputs& in, const Steps& steps)
      : steps_(steps),
        even_(std::ranges::all_of(in.speeds, [](double speed) { return speed == 1; })),
        durations_s_(in.workers),
        start_s_(in.start_offsets_s),
        end_s_(in.start_offsets_s),
        busy_s_(in.workers, 0.0) {}

  int workers() const { return static_cast<int>(end_s_.size()); }
  double end_s(int w) const { return end_s_[w]; }

  // A new step, of which each worker has drawn its own.
  void begin() {
    for (int w = 0; w < workers(); ++w) durations_s_[w] = steps_.durations(w);
  }
  // Every worker runs an op after its last one, not before `from_s`. Returns the end at the last worker.
  Event run(int32_t op, double from_s) {
    double latest_s = 0;
    for (size_t w = 0; w < end_s_.size(); ++w) {
      double duration_s = even_ ? durations_s_[w][op] : steps_.duration(static_cast<int>(w), op, true);
      busy_s_[w] += end_s_[w] - start_s_[w];
      start_s_[w] = std::max(end_s_[w], from_s);
      end_s_[w] = start_s_[w] + duration_s;
      latest_s = std::max(latest_s, end_s_[w]);
    }
    int last = workers() - 1;
    while (end_s_[last] != latest_s) --last;
    return {latest_s, event_key(WORKER, last, 0)};
  }
  // Nobody goes on before `from_s`.
  void wait_until(double from_s) {
    for (size_t w = 0; w < end_s_.size(); ++w) {
      busy_s_[w] += end_s_[w] - start_s_[w];
      start_s_[w] = end_s_[w] = std::max(end_s_[w], from_s);
    }
  }
  // How long a worker has computed by `now`. `next(i)`: the op that a worker runs i ops after this one although others
  // are not through yet, -1 if none; `from_s(op)`: not before then.
  template <class Next, class From>
  double busy_s(int w, double now, Next next, From from_s) const {
    double busy_s = busy_s_[w], start_s = start_s_[w], end_s = end_s_[w];
    for (int i = 1;; ++i) {
      busy_s += std::max(0.0, std::min(now, end_s) - start_s);
      int32_t op = end_s < now ? next(i) : -1;
      if (op < 0) return busy_s;
      start_s = std::max(end_s, from_s(op));
      end_s = start_s + steps_.duration(w, op, true);
    }
  }

 private:
  const Steps& steps_;
  bool even_;  // all workers are as fast as the one of the profile
  std::vector<const double*> durations_s_;
  std::vector<double> start_s_, end_s_;  // of the op that workers are at
  std::vector<double> busy_s_;           // by the ops before it
};

}  // namespace planner
