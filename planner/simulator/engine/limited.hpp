// Flows that go by the clocks of what limits them, and the first event of all those clocks.
#pragma once
#include <algorithm>
#include <functional>
#include <utility>
#include <vector>

#include "filling.hpp"
#include "nics.hpp"

namespace planner {

// What is common to all ways of finding max-min fair rates for the flows of one direction, or of both.
class LimitedFlows {
 public:
  // `first`, `last`: the directions, 0 down and 1 up, whose flows these are.
  LimitedFlows(const Inputs& in, const Now& now, int first, int last, bool remembers)
      : in_(in),
        now_(now),
        first_(first),
        flows_(size_t(last - first + 1) * in.workers * in.channels),
        filling_(in.flow_bytes_per_s),
        own_(in.flow_bytes_per_s < infinity ? flows_.size() : 0) {
    std::vector<int> nic_of(in.nic_capacity.size(), -1);
    int nics = 0;
    auto number = [&](int link) {
      if (nic_of[link] < 0) nic_of[link] = nics++;
      return nic_of[link];
    };
    for (int d = first; d <= last; ++d) {
      for (int node : in.far) number(2 * node + d);
      for (int node : in.near) number(2 * node + 1 - d);
    }
    nics_.resize(size_t(nics));
    for (size_t link = 0; link < nic_of.size(); ++link)
      if (nic_of[link] >= 0) nics_[nic_of[link]].capacity = in.nic_capacity[link];
    for (int d = first; d <= last; ++d)
      for (int w = 0; w < in.workers; ++w)
        for (int s = 0; s < in.channels; ++s) {
          MaxMinFlow& flow = at(d, w, s);
          flow.key = event_key(d == 0 ? DOWNLINK : UPLINK, w, s);
          if (!own_.empty()) flow.own = &own_[static_cast<size_t>(&flow - flows_.data())];
          flow.server = s;
          flow.worker = w;
          flow.server_nic = &nics_[nic_of[2 * in.far_of(w, s) + d]];
          flow.worker_nic = &nics_[nic_of[2 * in.near_of(w, s) + 1 - d]];
        }
    for_all_clocks([remembers](Clock& clock) { clock.remembers = remembers; });
  }
  LimitedFlows(const LimitedFlows&) = delete;

  Flow& flow(int direction, int worker, int server) { return at(direction, worker, server); }
  // The bytes that are known to follow a flow's chunk have changed.
  void extend(Flow& flow) {
    flow.clock->moved(flow);
    look_at(*flow.clock);
  }
  Event next() const { return next_; }
  template <class Do>
  void for_all_clocks(Do action) {
    for (Nic& nic : nics_) action(nic.clock);
    for (Clock& clock : own_) action(clock);
  }
  // Called before a flow goes to another clock: the flow must know its present chunk.
  std::function<void(Flow&)> before_move;

 protected:
  // Workers' flows lie together, in the order of channels.
  MaxMinFlow& at(int direction, int worker, int server) {
    return flows_[(size_t(direction - first_) * in_.workers + worker) * in_.channels + server];
  }
  // A chunk starts; true if it follows without a pause the chunk of the same lane that has just ended.
  bool follows(MaxMinFlow& flow, double size, double weight) {
    if (&flow != ended_ || flow.weight != weight) return false;
    ended_ = nullptr;
    flow.follow(size);
    extend(flow);
    return true;
  }
  void begin(MaxMinFlow& flow, double size, double weight) {
    flow.weight = weight;
    flow.size = flow.left = size;
    flow.running = true;
    flow.server_nic->add(flow);
    flow.worker_nic->add(flow);
  }
  void end(MaxMinFlow& flow) {
    flow.clock->set(now_, flow.target);
    look_at(*flow.clock);
    flow.clock->remove(flow);
    flow.running = false;
    flow.server_nic->remove(flow);
    flow.worker_nic->remove(flow);
  }
  bool limit(MaxMinFlow& flow, Clock& clock, double level) {
    flow.limit = &clock;
    flow.level = level;
    limited_.push_back(&flow);
    return true;
  }
  // Moves flows to the clocks of their limits, and sets the levels of those clocks.
  void settle() {
    size_t moving = 0;
    for (size_t i = 0; i < limited_.size(); ++i) {
      MaxMinFlow& flow = *limited_[i];
      if (flow.clock == flow.limit) continue;
      if (flow.clock != nullptr) move_away(flow);
      std::swap(limited_[moving++], limited_[i]);
    }
    for (MaxMinFlow* flow : limited_) run_clock(*flow->limit, flow->level);
    for (size_t i = 0; i < moving; ++i) {
      MaxMinFlow& flow = *limited_[i];
      flow.set_out(flow.limit->at(now_.time()), flow.left);
      flow.limit->add(flow);
      look_at(*flow.limit);
    }
    limited_.clear();
  }
  void run_clock(Clock& clock, double level) {
    if (!clock.empty() && level == clock.level) return;
    clock.tick(now_);
    clock.run_at(level);
    look_at(clock);
  }
  // The first event of all clocks that have flows.
  void find_next() {
    if (looked_at_.empty()) return;
    for (Clock* clock : looked_at_) {
      clock->looked_at = false;
      clock->first = clock->next();
      if (!clock->listed && !clock->empty()) clock->listed = true, listed_.push_back(clock);
    }
    looked_at_.clear();
    next_ = Event{};
    size_t kept = 0;
    for (Clock* clock : listed_) {
      if (clock->empty()) {
        clock->listed = false;
        continue;
      }
      listed_[kept++] = clock;
      next_ = std::min(next_, clock->first);
    }
    listed_.resize(kept);
  }

  const Inputs& in_;
  const Now& now_;
  int first_;
  std::vector<Nic> nics_;
  std::vector<MaxMinFlow> flows_;
  Filling filling_;
  std::vector<MaxMinFlow*> limited_;  // flows whose limits were computed in this event
  MaxMinFlow* ended_ = nullptr;

 private:
  void move_away(MaxMinFlow& flow) {
    if (before_move) before_move(flow);
    flow.left = std::max(0.0, (flow.target - flow.clock->at(now_.time())) * flow.weight);
    look_at(*flow.clock);
    flow.clock->remove(flow);
  }
  void look_at(Clock& clock) {
    if (!clock.looked_at) looked_at_.push_back(&clock);
    clock.looked_at = true;
  }

  std::vector<Clock> own_;  // one clock a flow, for flows with a limit of their own
  std::vector<Clock*> looked_at_, listed_;
  Event next_;
};

// Any ends: nodes that hold servers and workers, or several servers, ports on a fabric, more than 64 channels. When a
// flow comes or goes, rates are computed anew for the flows that are tied to it by NICs that they share.
class MixedShares : public LimitedFlows {
 public:
  using LimitedFlows::LimitedFlows;

  void start(Flow& started, double size, double weight) {
    auto& flow = static_cast<MaxMinFlow&>(started);
    if (follows(flow, size, weight)) return;
    leave();
    begin(flow, size, weight);
    flow.server_nic->list(flow, flow.place_at_server);
    flow.worker_nic->list(flow, flow.place_at_worker);
    changed(flow);
  }
  void finish(Flow& flow) { ended_ = static_cast<MaxMinFlow*>(&flow); }
  void commit() {
    leave();
    if (!nics_to_see_.empty()) share();
    find_next();
  }

 private:
  void leave() {
    if (ended_ == nullptr) return;
    end(*ended_);
    unlist(*ended_->server_nic, ended_->place_at_server);
    unlist(*ended_->worker_nic, ended_->place_at_worker);
    changed(*ended_);
    ended_ = nullptr;
  }
  static void unlist(Nic& nic, uint32_t place) {
    MaxMinFlow* last = nic.listed.back();
    nic.listed.pop_back();
    if (place == nic.listed.size()) return;
    nic.listed[place] = last;
    (last->server_nic == &nic ? last->place_at_server : last->place_at_worker) = place;
  }
  void changed(MaxMinFlow& flow) {
    see(*flow.worker_nic);
    see(*flow.server_nic);
  }
  void see(Nic& nic) {
    if (!nic.seen) nics_to_see_.push_back(&nic);
    nic.seen = true;
  }
  void share() {
    running_.clear();
    for (size_t i = 0; i < nics_to_see_.size(); ++i) {
      nics_to_see_[i]->weigh();
      for (MaxMinFlow* flow : nics_to_see_[i]->listed) {
        if (std::exchange(flow->changed, true)) continue;
        running_.push_back(flow);
        changed(*flow);
      }
    }
    for (Nic* nic : nics_to_see_) nic->seen = false;
    nics_to_see_.clear();
    for (MaxMinFlow* flow : running_) flow->changed = false;
    std::ranges::sort(running_, {}, &MaxMinFlow::key);
    filling_.run(running_);
    for (MaxMinFlow* flow : running_) limit(*flow, *flow->limit, flow->level);
    settle();
  }

  std::vector<Nic*> nics_to_see_;  // whose flows may change their rates
  std::vector<MaxMinFlow*> running_;
};

}  // namespace planner
