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

// `rank`: where it comes among the events of its instant, which is by key, except for what came up after events
// of greater keys.
struct Arrival {
  double time_s;
  uint64_t rank;
  int32_t op;
};

class Machine {
 public:
  Machine(const Inputs& in, int resource, int server)
      : in_(in), speed_counts_(resource == WORKER), waiting_(in.ops), links_(in.ops) {
    auto mine = [&](int32_t op) {
      return in.resource[op] == resource && (resource == WORKER || in.server[op] == server);
    };
    feeders_ = Edges::select(in, [&](int32_t op, int32_t dependent) { return !mine(op) && mine(dependent); });
    inner_ = Edges::select(in, [&](int32_t op, int32_t dependent) { return mine(op) && mine(dependent); });
    outer_ = Edges::select(in, [&](int32_t op, int32_t dependent) { return mine(op) && !mine(dependent); });
    for (int32_t op = 0; op < in.ops; ++op) {
      ops_ += mine(op);
      auto inner = inner_.of(op);
      links_[op] = {inner.size() == 1 && in.waiting[inner[0]] == 1 ? inner[0] : -1, !outer_.of(op).empty()};
    }
    queue_.resize(ops_);
    ends_s_.resize(ops_);
  }

  int ops() const { return ops_; }
  // Those that have ended, in order.
  std::span<const int32_t> order() const { return {queue_.data(), ended_}; }
  std::span<const double> ends_s() const { return {ends_s_.data(), ended_}; }
  // Places of ops that something else waits for.
  std::span<const int32_t> shown() const { return shown_; }
  double busy_s(double begin_s, double now) const {
    return ended_ == 0 ? 0.0 : std::min(now, ends_s_[ended_ - 1]) - begin_s - idle_s_;
  }

  // From the beginning of a step: `roots` wait for nothing. `key`: of the events of this machine.
  void run(const Steps& steps, int worker, double begin_s, uint64_t key, std::span<const int32_t> roots,
           std::span<const Arrival> arrivals) {
    std::copy(steps.dependencies().begin(), steps.dependencies().end(), waiting_.begin());
    order_ = in_.has_order() ? steps.order(worker) : nullptr;
    const double *durations = steps.durations(worker), speed = speed_counts_ ? steps.speed(worker) : 1;
    const Arrival *arrival = arrivals.data(), *none_left = arrival + arrivals.size();
    int32_t *head = queue_.data(), *tail = std::copy(roots.begin(), roots.end(), head);
    double now = begin_s, *end_s = ends_s_.data();
    uint64_t rank = key;  // of the next end, if it takes no time
    idle_s_ = 0;
    shown_.clear();
    for (;;) {
      if (head == tail) {
        if (arrival == none_left) break;
        now = std::max(now, arrival->time_s);
        rank = std::max(key, arrival->rank);
        tail = release(feeders_.of((arrival++)->op), tail);
        if (head != tail) idle_s_ += now - (head == queue_.data() ? begin_s : end_s[-1]);
        continue;
      }
      int32_t op = *head;
      double before = now;
      now += speed == 1 ? durations[op] : durations[op] / speed;
      if (now != before) rank = key;
      for (; arrival != none_left && arrival->time_s <= now; ++arrival) {
        if (arrival->time_s == now && arrival->rank > rank) break;
        tail = release(feeders_.of(arrival->op), tail);
      }
      Link link = links_[op];
      if (link.shows) shown_.push_back(static_cast<int32_t>(head - queue_.data()));
      *end_s++ = now;
      ++head;
      if (link.next >= 0)
        *tail++ = link.next;
      else
        tail = release(inner_.of(op), tail);
    }
    ended_ = static_cast<size_t>(head - queue_.data());
  }
  // What waits for an op besides those of this machine, and whether nothing else is missing.
  std::span<const int32_t> unlocked_by(int32_t op) const { return outer_.of(op); }
  bool unlocks(int32_t op) { return --waiting_[op] == 0; }

 private:
  // What the end of an op does: `next` if all it unlocks here is one op that waits for nothing else.
  struct Link {
    int32_t next;
    bool shows;
  };
  int32_t* release(std::span<const int32_t> dependents, int32_t* tail) {
    int32_t* first = tail;
    for (int32_t op : dependents)
      if (--waiting_[op] == 0) *tail++ = op;
    if (order_ != nullptr && tail - first > 1) sort_by_order({first, tail}, order_);
    return tail;
  }

  const Inputs& in_;
  bool speed_counts_;
  std::vector<uint16_t> waiting_;
  std::vector<Link> links_;
  Edges feeders_, inner_, outer_;
  int32_t ops_ = 0;
  size_t ended_ = 0;
  double idle_s_ = 0;
  const int32_t* order_ = nullptr;
  std::vector<int32_t> queue_, shown_;
  std::vector<double> ends_s_;
};

}  // namespace planner
