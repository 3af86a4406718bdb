// What a worker computes in a step, or a server updates for it: ops that run one after the other, first come
// first served, once it is known when the transfers that they wait for arrive.
#pragma once
#include <cstdint>
#include <span>
#include <vector>

#include "compute.hpp"
#include "events.hpp"
#include "steps.hpp"

namespace planner {

struct Arrival {
  double time_s;
  int32_t op;
};

class Machine {
 public:
  Machine(const Inputs& in, int resource, int server)
      : in_(in), speed_counts_(resource == WORKER), waiting_(in.ops), next_(in.ops, -1), shows_(in.ops, 0) {
    auto mine = [&](int32_t op) { return in.resource[op] == resource && (resource == WORKER || in.server[op] == server); };
    inner_ = Edges::select(in, [&](int32_t op, int32_t dependent) { return mine(op) && mine(dependent); });
    for (int32_t op = 0; op < in.ops; ++op) {
      ops_ += mine(op);
      auto inner = inner_.of(op);
      if (inner.size() == 1 && in.waiting[inner[0]] == 1) next_[op] = inner[0];
      if (mine(op) && in.dependent_start[op + 1] - in.dependent_start[op] > static_cast<int32_t>(inner.size()))
        shows_[op] = 1;
    }
    queue_.resize(ops_);
    ends_s_.resize(ops_);
  }

  int ops() const { return ops_; }
  // Those that have ended, in order.
  std::span<const int32_t> order() const { return {queue_.data(), static_cast<size_t>(head_)}; }
  std::span<const double> ends_s() const { return {ends_s_.data(), static_cast<size_t>(head_)}; }
  // Places of ops that something else waits for.
  std::span<const int32_t> shown() const { return shown_; }
  double busy_s(double begin_s, double now) const {
    return head_ == 0 ? 0.0 : std::min(now, ends_s_[head_ - 1]) - begin_s - idle_s_;
  }

  // From the beginning of a step: `roots` wait for nothing. An arrival at the end of an op goes before it.
  void run(const Steps& steps, int worker, double begin_s, std::span<const int32_t> roots,
           std::span<const Arrival> arrivals) {
    std::copy(steps.dependencies().begin(), steps.dependencies().end(), waiting_.begin());
    order_ = in_.has_order() ? steps.order(worker) : nullptr;
    const double *durations = steps.durations(worker), speed = speed_counts_ ? steps.speed(worker) : 1;
    head_ = tail_ = 0;
    idle_s_ = 0;
    shown_.clear();
    for (int32_t op : roots) queue_[tail_++] = op;
    double now = begin_s;
    size_t next = 0;
    for (;;) {
      if (head_ == tail_) {
        if (next == arrivals.size()) return;
        now = std::max(now, arrivals[next].time_s);
        arrive(arrivals[next++].op);
        if (head_ != tail_) idle_s_ += now - (head_ == 0 ? begin_s : ends_s_[head_ - 1]);
        continue;
      }
      int32_t op = queue_[head_];
      now += speed == 1 ? durations[op] : durations[op] / speed;
      for (; next < arrivals.size() && arrivals[next].time_s <= now; ++next) arrive(arrivals[next].op);
      if (shows_[op]) shown_.push_back(head_);
      ends_s_[head_++] = now;
      if (next_[op] >= 0)
        queue_[tail_++] = next_[op];
      else
        release(inner_.of(op));
    }
  }
  // An op of another kind waits for what has ended: is this the last?
  bool unlocks(int32_t op) { return --waiting_[op] == 0; }

 private:
  void arrive(int32_t op) {
    release(in_.dependent_index.subspan(static_cast<size_t>(in_.dependent_start[op]),
                                        static_cast<size_t>(in_.dependent_start[op + 1] - in_.dependent_start[op])));
  }
  void release(std::span<const int32_t> dependents) {
    int32_t first = tail_;
    for (int32_t op : dependents)
      if (--waiting_[op] == 0) queue_[tail_++] = op;
    if (order_ != nullptr && tail_ - first > 1)
      sort_by_order({queue_.data() + first, static_cast<size_t>(tail_ - first)}, order_);
  }

  const Inputs& in_;
  bool speed_counts_;
  std::vector<uint16_t> waiting_;
  std::vector<int32_t> next_;  // if all that the end of an op unlocks is one op that waits for nothing else
  std::vector<uint8_t> shows_;
  Edges inner_;
  int32_t ops_ = 0, head_ = 0, tail_ = 0;
  double idle_s_ = 0;
  const int32_t* order_ = nullptr;
  std::vector<int32_t> queue_, shown_;
  std::vector<double> ends_s_;
};

}  // namespace planner
