// How running transfers share the network; the operations and their order are those of sharing.py.
#pragma once
#include <algorithm>
#include <cstdint>
#include <vector>

#include "events.hpp"
#include "max_min.hpp"

namespace planner {

// One direction of one server in virtual time: a start or an end costs O(log workers).
class EqualShares {
 public:
  EqualShares(const Inputs& in, int resource)
      : resource_(resource),
        capacity_(in.capacity[resource == UPLINK]),
        flow_limit_(in.flow_limit[resource == UPLINK]),
        flows_(in.workers) {
    targets_.reserve(in.workers);
  }

  void start(double now, int worker, int, double size, double weight) {
    if (!targets_.empty()) virtual_ += (now - since_) * rate();
    since_ = now;
    weights_ += weight;
    Target target{virtual_ + (weight == 1 ? size : size / weight), worker};
    flows_[worker] = {size, weight, target.at};
    targets_.push(target);
    stale_ = true;
  }
  void finish(double now, int worker, int) {
    targets_.settle();
    virtual_ = targets_.top().at;
    targets_.take();
    since_ = now;
    weights_ -= flows_[worker].weight;
    if (targets_.empty()) virtual_ = weights_ = 0;
    stale_ = true;
  }
  Event next() {
    if (stale_) {
      stale_ = false;
      targets_.settle();
      next_ = Event{};
      if (!targets_.empty()) {
        auto [target, worker] = targets_.top();
        double end = since_ + (target - virtual_) / rate();
        next_ = {std::max(end, since_), event_key(resource_, worker, 0)};
      }
    }
    return next_;
  }
  double delivered(double now, int worker, int) const {
    const Flow& flow = flows_[worker];
    return flow.size - (flow.target - (virtual_ + (now - since_) * rate())) * flow.weight;
  }

 private:
  struct Flow {
    double size, weight, target;
  };
  struct Target {
    double at;  // the virtual time at which the flow ends
    int worker;
    bool operator<(const Target& other) const {
      return at < other.at || (at == other.at && worker < other.worker);
    }
  };
  // Divides only when the weights have changed since it last did.
  double rate() const {
    if (weights_ != rate_of_) {
      rate_ = std::min(capacity_ / weights_, flow_limit_);
      rate_of_ = weights_;
    }
    return rate_;
  }

  int resource_;
  double capacity_, flow_limit_;
  double weights_ = 0, virtual_ = 0, since_ = 0;
  mutable double rate_ = 0, rate_of_ = 0;
  Heap<Target> targets_;
  std::vector<Flow> flows_;
  Event next_;
  bool stale_ = false;
};

// The two directions, by one interface.
class EqualLinks {
 public:
  explicit EqualLinks(const Inputs& in) : direction_{EqualShares(in, DOWNLINK), EqualShares(in, UPLINK)} {}
  void start(double now, int d, int w, int s, double size, double weight) {
    direction_[d].start(now, w, s, size, weight);
    stale_ = true;
  }
  void finish(double now, int d, int w, int s) {
    direction_[d].finish(now, w, s);
    stale_ = true;
  }
  void commit(double) {
    if (!stale_) return;
    stale_ = false;
    next_ = std::min(direction_[0].next(), direction_[1].next());
  }
  Event next() const { return next_; }
  double delivered(double now, int d, int w, int s) const { return direction_[d].delivered(now, w, s); }

 private:
  EqualShares direction_[2];
  bool stale_ = false;
  Event next_;
};

class MaxMinLinks {
 public:
  explicit MaxMinLinks(const Inputs& in) {
    for (int node : in.server_nodes)
      mixed_ = mixed_ || std::ranges::find(in.worker_nodes, node) != in.worker_nodes.end();
    direction_.emplace_back(in, 0, mixed_ ? 1 : 0);
    if (!mixed_) direction_.emplace_back(in, 1, 1);
  }
  void start(double now, int d, int w, int s, double size, double weight) {
    of(d).start(now, d, w, s, size, weight);
  }
  void finish(double now, int d, int w, int s) { of(d).finish(now, d, w, s); }
  void commit(double now) {
    for (auto& shares : direction_) shares.commit(now);
  }
  Event next() {
    Event first;
    for (auto& shares : direction_) first = std::min(first, shares.next());
    return first;
  }
  double delivered(double now, int d, int w, int s) { return of(d).delivered(now, d, w, s); }

 private:
  MaxMinShares& of(int d) { return direction_[mixed_ ? 0 : d]; }
  std::vector<MaxMinShares> direction_;
  bool mixed_ = false;
};

}  // namespace planner
