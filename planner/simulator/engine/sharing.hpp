// How running transfers share the network; the operations and their order are those of sharing.py.
#pragma once
#include <algorithm>
#include <cstdint>
#include <functional>
#include <memory>
#include <type_traits>
#include <vector>

#include "clocks.hpp"
#include "max_min.hpp"

namespace planner {

// One direction of one server: a change costs O(log workers).
class EqualShares {
 public:
  EqualShares(const Inputs& in, const Now& now, int resource, bool remembers)
      : now_(now),
        capacity_(in.capacity[resource == UPLINK]),
        flow_limit_(in.flow_limit[resource == UPLINK]),
        flows_(in.workers) {
    for (int w = 0; w < in.workers; ++w) flows_[w].key = event_key(resource, w, 0);
    clock_.remembers = remembers;
  }

  Flow& flow(int, int worker, int) { return flows_[worker]; }
  void start(Flow& flow, double size, double weight) {
    stale_ = true;
    if (&flow == ended_ && flow.weight == weight) {
      ended_ = nullptr;
      flow.follow(size);
      clock_.moved(flow);
      return;
    }
    leave();
    clock_.tick(now_);
    weights_ += weight;
    share();
    flow.weight = weight;
    flow.size = size;
    flow.set_out(clock_.virtual_bytes, size);
    clock_.add(flow);
  }
  void finish(Flow& flow) {
    ended_ = &flow;
    stale_ = true;
  }
  // The bytes that are known to follow a flow's chunk have changed.
  void extend(Flow& flow) {
    clock_.moved(flow);
    stale_ = true;
  }
  void commit() {
    if (!stale_) return;
    stale_ = false;
    leave();
    next_ = clock_.next();
  }
  Event next() const { return next_; }
  template <class Do>
  void for_all_clocks(Do action) { action(clock_); }

 private:
  void leave() {
    if (ended_ == nullptr) return;
    clock_.set(now_, ended_->target);
    clock_.remove(*ended_);
    weights_ = clock_.empty() ? 0 : weights_ - ended_->weight;
    if (!clock_.empty()) share();
    ended_ = nullptr;
  }
  void share() { clock_.run_at(std::min(capacity_ / weights_, flow_limit_)); }

  const Now& now_;
  double capacity_, flow_limit_, weights_ = 0;
  Clock clock_;
  std::vector<Flow> flows_;
  Flow* ended_ = nullptr;
  Event next_;
  bool stale_ = false;
};

// The two directions behind one interface; shared by both where some node is both a near and a far end.
template <class Shares>
class Links {
 public:
  // `down`, `up`: do the clocks of that direction remember their past?
  Links(const Inputs& in, const Now& now, bool down, bool up) : now_(now) {
    if constexpr (std::is_same_v<Shares, EqualShares>) {
      direction_[0] = std::make_unique<Shares>(in, now, DOWNLINK, down);
      direction_[1] = std::make_unique<Shares>(in, now, UPLINK, up);
    } else {
      std::vector<uint8_t> is_near(in.nic_capacity.size() / 2, 0);
      for (int node : in.near) is_near[node] = 1;
      for (int node : in.far) mixed_ = mixed_ || is_near[node] != 0;
      direction_[0] = std::make_unique<Shares>(in, now, 0, mixed_ ? 1 : 0, down);
      if (!mixed_) direction_[1] = std::make_unique<Shares>(in, now, 1, 1, up);
    }
  }
  Shares& of(int d) { return *direction_[mixed_ ? 0 : d]; }
  Flow& flow(int d, int worker, int server) { return of(d).flow(d, worker, server); }
  void commit() {
    direction_[0]->commit();
    if (!mixed_) direction_[1]->commit();
  }
  // Called before a flow goes to another clock: the flow must know its present chunk.
  void before_move(const std::function<void(Flow&)>& action) {
    if constexpr (!std::is_same_v<Shares, EqualShares>)
      for (auto& shares : direction_)
        if (shares) shares->before_move = action;
  }
  Event next() const {
    Event first = direction_[0]->next();
    return mixed_ ? first : std::min(first, direction_[1]->next());
  }
  // A clock needs its past back to the last look of any lane only: `look` makes all lanes look at their clocks.
  template <class Look>
  void forget(size_t lanes, Look look) {
    if (now_.remembered < 1024 + 8 * static_cast<int64_t>(lanes)) return;
    now_.remembered = 0;
    look();
    for (auto& shares : direction_)
      if (shares) shares->for_all_clocks([](Clock& clock) { clock.forget(); });
  }

 private:
  const Now& now_;
  std::unique_ptr<Shares> direction_[2];
  bool mixed_ = false;
};

}  // namespace planner
