// Downloads of simulation.hpp that are no events: where nothing can be seen of a step before all downloads are in,
// only the last download of a lane is an event; computation is told of the other downloads when they matter.
#pragma once
#include <algorithm>
#include <cstdint>
#include <span>
#include <stdexcept>
#include <vector>

#include "feeders.hpp"
#include "link_lane.hpp"
#include "sharing.hpp"
#include "steps.hpp"

namespace planner {

template <class Shares>
class UnseenDownloads {
 public:
  static bool applies(const Inputs& in, const Feeders& feeders) {
    if (in.tied || in.policy.kind == Kind::blocks) return false;
    if (in.policy.overhead_s[0] > 0 || !in.latency.empty()) return false;
    if (std::ranges::any_of(in.local, [](uint8_t local) { return local != 0; })) return false;
    int downloads = 0;
    for (int32_t op = 0; op < in.ops; ++op) {
      bool root = in.waiting[op] == 0, download = in.resource[op] == DOWNLINK;
      downloads += download;
      if (root ? !download && in.resource[op] != WORKER : download) return false;
      if (download && !std::ranges::all_of(in.dependents(op), [&](int32_t to) { return in.resource[to] == WORKER; }))
        return false;
    }
    return downloads > 0 && feeders.required_count == downloads;
  }

  UnseenDownloads(const Inputs& in, const Now& now, const Poll& poll, Links<Shares>& links,
                 const std::vector<LinkTraits>& traits, bool used)
      : in_(in), now_(now), poll_(poll), links_(links), lanes_left_(in.workers, 0) {
    if (!used) return;
    for (int w = 0; w < in.workers; ++w)
      for (int s = 0; s < in.channels; ++s) lanes_.emplace_back(in, traits[s], links.flow(0, w, s), 0, w, s);
    links.before_move([this](Flow& flow) {
      if (key_resource(flow.key) == DOWNLINK) lane_of(flow.key).catch_up(now_, poll_);
    });
  }

  void add(int w, int32_t op) {
    LinkLane& lane = lanes_[size_t(w) * in_.channels + in_.server[op]];
    if (lane.flow->rest == 0) starting_.push_back(&lane);
    lane.add(op);
  }
  void start(const Steps& steps) {
    for (LinkLane* lane : starting_) {
      lane->begin(links_, now_, steps.weight(lane->worker, 0, lane->server));
      ++lanes_left_[lane->worker];
    }
    starting_.clear();
  }
  // The end of a lane's downloads; true if the worker has all.
  bool alarm(uint64_t key) {
    LinkLane& lane = lane_of(key);
    if (lane.advance(now_, poll_)) throw std::logic_error("downloads go on after their last end");
    lane.end(links_);
    return --lanes_left_[lane.worker] == 0;
  }
  // The downloads that have arrived since the last call, in order.
  std::span<const Arrival> arrived(int w) {
    catch_up(of(w), now_, poll_);
    heads_.clear();
    for (LinkLane& lane : of(w)) heads_.push_back(lane.arrived);
    merge(heads_, merged_);
    for (LinkLane& lane : of(w)) lane.arrived.clear();
    return merged_;
  }
  // After `arrived`.
  double bytes(int w, int s) const {
    const LinkLane& lane = lanes_[size_t(w) * in_.channels + s];
    return lane.sent_bytes + (lane.sending ? lane.flow->delivered(now_.time()) : 0);
  }
  int64_t chunks() const {
    int64_t ended = 0;
    for (const LinkLane& lane : lanes_) ended += lane.chunks;
    return ended;
  }
  void forget() {
    links_.forget(lanes_.size(), [this] { catch_up(lanes_, now_, poll_); });
  }

 private:
  LinkLane& lane_of(uint64_t key) { return lanes_[size_t(key_worker(key)) * in_.channels + key_server(key)]; }
  std::span<LinkLane> of(int w) { return {&lanes_[size_t(w) * in_.channels], static_cast<size_t>(in_.channels)}; }

  const Inputs& in_;
  const Now& now_;
  const Poll& poll_;
  Links<Shares>& links_;
  std::vector<LinkLane> lanes_;   // workers x channels
  std::vector<int> lanes_left_;   // by worker: lanes with downloads to come
  std::vector<LinkLane*> starting_;
  std::vector<std::span<const Arrival>> heads_;
  std::vector<Arrival> merged_;
};

}  // namespace planner
