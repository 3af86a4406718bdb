// What happens at an event: Algorithm 3.1 as reference.py specifies it, for any step.
//
// Some shortcuts leave out events that nobody else can see. `ahead` (run_ahead.hpp; unless a timeline or a limit of
// events is asked for): of computation, only ends that something outside can see are events. `known_updates` (if no
// worker is tied to another and cores abound): a server lane is first come first served, so the end of an op is known
// when the op queues; only ends that unlock something and the last end of a step are events. `unseen` downloads: see
// unseen_downloads.hpp.
#pragma once
#include <algorithm>
#include <cstdint>
#include <stdexcept>
#include <utility>
#include <vector>

#include "run_ahead.hpp"
#include "event_loop.hpp"
#include "events.hpp"
#include "generator.hpp"
#include "lanes.hpp"
#include "unseen_downloads.hpp"
#include "schedulers.hpp"
#include "sharing.hpp"
#include "steps.hpp"
#include "waits.hpp"

namespace planner {

template <class Shares, bool ahead>
class Simulation : public EventLoop<Simulation<Shares, ahead>> {
 public:
  Simulation(const Inputs& in, const Feeders& feeders, const Poll& poll)
      : in_(in),
        poll_(poll),
        known_updates_(ahead && !in.tied && in.cores_abound()),
        unseen_(ahead && UnseenDownloads<Shares>::applies(in, feeders)),
        links_(in, now_, unseen_, false),
        steps_(in, counted_ops(in)),
        compute_(in, feeders, steps_, ahead),
        traits_(link_traits(in)),
        downloads_(in, now_, poll, links_, traits_, unseen_),
        ops_(in.ops),
        groups_(in),
        barriers_(in),
        cores_(in) {
    for (int op = 0; op < in.ops; ++op)
      ops_[op] = {in.lane_of(in.resource[op], in.server[op]), !in.dependents(op).empty(),
                  in.gated[op] != 0 || in.awaits[op] >= 0 || in.scope[op] >= 0, ahead && feeders.feeds[op] != 0};
    lanes_ = lanes_of(in, schedulers_, traits_, links_, ahead);
    queue_.reserve(lanes_.size());
  }

 private:
  friend class EventLoop<Simulation>;

  struct OpInfo {
    int32_t lane;   // among the lanes of its worker
    bool unlocks;   // some op waits for this one
    bool may_wait;  // the op may wait for other workers
    bool feeds;     // computation that runs ahead waits for it
  };
  Lane& lane_at(int worker, int lane) { return lanes_[size_t(worker) * in_.lanes() + lane]; }
  static int direction(const Lane& lane) { return lane.resource == UPLINK; }

  void process(uint64_t key, bool) {
    double now = now_.time();
    int worker = key_worker(key), resource = key_resource(key);
    if (resource < 0)
      start_random_step(worker, now);
    else if (ahead && resource == WORKER)
      computation_shows(worker, now);
    else if (unseen_ && resource == DOWNLINK)
      end_of_downloads(key, now);
    else if (known_updates_ && resource == PS)
      end_of_update(lane_at(worker, in_.lane_of(PS, key_server(key))), now);
    else
      end_of_chunk(lane_at(worker, in_.lane_of(resource, key_server(key))), now);
    for (size_t i = 0; i < idle_.size(); ++i) {
      idle_[i]->marked = false;
      if (idle_[i]->chunk.op < 0) start_chunk(*idle_[i], now);
    }
    idle_.clear();
    if (ahead && showing_ >= 0) show_next(std::exchange(showing_, -1));
  }

  void start_random_step(int worker, double now) {
    steps_.begin(worker, now);
    if constexpr (ahead) compute_.begin(worker, now, now_.turn);
    if (known_updates_)
      for (int s = 0; s < in_.channels; ++s) lane_at(worker, in_.lane_of(PS, s)).begin_updates();
    for (int32_t op : steps_.roots(worker))
      if (unseen_ && in_.resource[op] == DOWNLINK)
        downloads_.add(worker, op);
      else
        ready(worker, op);
    if (unseen_) downloads_.start(steps_);
    if (ahead) show_soon(worker);
    if (steps_.unfinished(worker) == 0) queue_.push(last_update(worker));
  }

  void end_of_downloads(uint64_t key, double now) {
    if (!downloads_.alarm(key)) return;
    int worker = key_worker(key);
    bool all = feed(worker);
    show_soon(worker);
    if (all) all_ended(worker, now);
  }
  // Tell computation what has been downloaded; true if that was all there is in a step.
  bool feed(int worker) {
    std::span<const Arrival> arrived = downloads_.arrived(worker);
    compute_.feed(worker, arrived, now_.turn);
    bool all = false;
    for (size_t i = 0; i < arrived.size(); ++i) all = steps_.op_ended(worker);
    return all;
  }

  // Run-ahead: puts the next visible end into the queue, unless it is there.
  void show_soon(int worker) {
    Lane& computation = lane_at(worker, in_.lane_of(WORKER, -1));
    if (computation.deferred) return;
    Event next = compute_.has_visible(worker) ? compute_.next_visible(worker) : Event{};
    if (!next.none() && next.time() != computation.shows_s) queue_.push(next);
    computation.shows_s = next.none() ? -1 : next.time();
  }

  void computation_shows(int worker, double now) {
    Lane& computation = lane_at(worker, in_.lane_of(WORKER, -1));
    if (now != computation.shows_s) return;  // computation ran ahead too far, and this end was put off
    computation.shows_s = -1;
    computation.deferred = false;
    auto [end_s, op, last] = compute_.take_visible(worker);
    release(worker, compute_.unlocked_by(op));
    if (!last)
      showing_ = worker;
    else if (steps_.op_ended(worker))
      all_ended(worker, now);
  }

  // The next end that shows is an event, unless the end would only add an upload to the queue of a busy lane: then
  // it is enough to queue the upload before that lane looks for its next chunk.
  void show_next(int worker) {
    Lane& computation = lane_at(worker, in_.lane_of(WORKER, -1));
    computation.deferred = computation.shows_s < 0 && compute_.shows_uploads_only() && all_uplinks_busy(worker);
    show_soon(worker);
  }
  bool all_uplinks_busy(int worker) {
    for (int s = 0; s < in_.channels; ++s)
      if (lane_at(worker, in_.lane_of(UPLINK, s)).chunk.op < 0) return false;
    return true;
  }
  void show_deferred(int worker) {
    Lane& computation = lane_at(worker, in_.lane_of(WORKER, -1));
    if (!computation.deferred) return;
    computation.deferred = false;
    while (compute_.has_visible(worker) && compute_.next_visible(worker) < now_.event) {
      auto [end_s, op, last] = compute_.take_visible(worker);
      release(worker, compute_.unlocked_by(op));
      if (last) steps_.op_ended(worker);  // not the end of the step: the upload of this event is still to end
    }
    showing_ = worker;
  }

  void ready(int worker, int32_t op) {
    if (ops_[op].may_wait && must_wait(worker, op)) return;
    enqueue(worker, op);
  }

  // Whether an op waits for other workers. A joint op goes to the leader of its group.
  bool must_wait(int& worker, int32_t op) {
    bool joint = in_.scope[op] >= 0;
    if (joint) {
      worker = groups_.leader(op, worker);
      if (!groups_.all_arrived(op, worker)) return true;
    }
    if (!in_.gated[op]) return barriers_.hold(worker, steps_.now(worker), op);
    if (!barriers_.all_arrived(op, joint ? groups_.leaders(op).size() : size_t(in_.workers))) return true;
    if (joint)
      for (int w : groups_.leaders(op)) enqueue(w, op);
    else
      for (int w = 0; w < in_.workers; ++w) enqueue(w, op);
    return true;
  }

  void enqueue(int worker, int32_t op) {
    Lane& lane = lane_at(worker, ops_[op].lane);
    if (ahead && lane.resource == WORKER) return compute_.enqueue(worker, op, now_.event.time());
    if (known_updates_ && lane.resource == PS) {
      double end_s = lane.add_update(now_.event.time(), steps_.duration(worker, op, false));
      lane.turn = now_.turn;
      lane.last_unlocks = ops_[op].unlocks;
      if (!lane.last_unlocks) {
        steps_.op_ended(worker);
      } else {
        lane.queue.push(op);
        queue_.push({end_s, lane.key});
      }
      return;
    }
    lane.enqueue(op);
    mark_idle(lane);
  }
  void mark_idle(Lane& lane) {
    if (lane.chunk.op >= 0 || lane.marked) return;
    lane.marked = true;
    idle_.push_back(&lane);
  }

  void start_chunk(Lane& lane, double now) {
    Chunk& chunk = lane.chunk;
    if (lane.on_link()) {
      if (!lane.scheduler->take(now, chunk)) return;
      chunk.start_s = now;
      chunk.flowing = false;
      if (chunk.ready_s > now)
        queue_.push({chunk.ready_s, lane.key});
      else
        start_flow(lane, now);
      return;
    }
    if (lane.queue.empty()) return;
    if (lane.pool >= 0 && !cores_.take(lane)) return;
    chunk.op = lane.queue.pop();
    chunk.start_s = now;
    queue_.push({now + steps_.duration(lane.worker, chunk.op, lane.resource == WORKER), lane.key});
  }

  void start_flow(Lane& lane, double now) {
    lane.chunk.flow_s = now;
    lane.chunk.flowing = true;
    if (lane.local)
      queue_.push({now + lane.chunk.size / in_.local_bytes_per_s, lane.key});
    else
      links_.of(direction(lane)).start(*lane.flow, lane.chunk.size, weight(lane));
  }
  double weight(const Lane& lane) const {
    return in_.scope[lane.chunk.op] < 0 ? steps_.weight(lane.worker, direction(lane), lane.server) : 1.0;
  }

  void end_of_chunk(Lane& lane, double now) {
    Chunk& chunk = lane.chunk;
    int32_t op = chunk.op;
    bool last = true;
    if (lane.on_link()) {
      if (!chunk.flowing) {  // only the overhead of the chunk is over
        start_flow(lane, now);
        return;
      }
      if (ahead && lane.resource == UPLINK) show_deferred(lane.worker);
      if (!lane.local) links_.of(direction(lane)).finish(*lane.flow);
      lane.used += chunk.size;
      lane.scheduler->done(chunk);
      last = chunk.last;
    } else {
      lane.used += now - chunk.start_s;
    }
    ++result_.events;
    if (in_.timeline) record(lane, now);
    chunk.op = -1;
    mark_idle(lane);
    if (lane.pool >= 0)
      if (Lane* next = cores_.release(lane.pool)) idle_.insert(idle_.begin(), next);
    if (last) end_of_op(lane.worker, op, now);
  }

  void end_of_op(int worker, int32_t op, double now) {
    if (in_.tied) {
      for (auto [w, waiting] : barriers_.publish(op)) enqueue(w, waiting);
      if (in_.scope[op] >= 0) {
        for (int member : groups_.members(op, worker)) end_for(member, op, now);
        return;
      }
    }
    end_for(worker, op, now);
  }
  void end_for(int worker, int32_t op, double now) {
    const OpInfo& info = ops_[op];
    if (info.feeds) compute_.arrive(worker, op, now_.instant.latest_since(compute_.turn(worker)), now_.turn);
    release(worker, in_.dependents(op));
    if (info.feeds) show_soon(worker);
    if (steps_.op_ended(worker)) all_ended(worker, now);
  }

  void release(int worker, std::span<const int32_t> dependents) {
    if (dependents.size() == 1) {
      if (steps_.release(worker, dependents[0])) ready(worker, dependents[0]);
    } else if (dependents.size() > 1) {
      for (int32_t dependent : steps_.release_all(worker, dependents)) ready(worker, dependent);
    }
  }

  // known_updates: the end of an update that unlocks an op, or the last end of the step.
  void end_of_update(Lane& lane, double now) {
    if (lane.queue.empty()) return end_of_step(lane.worker, now);
    end_of_op(lane.worker, lane.queue.pop(), now);
  }

  // Every op that is an event has ended; updates that are not may still run, then the last ends the step.
  void all_ended(int worker, double now) {
    Event last = known_updates_ ? last_update(worker) : Event{};
    if (last.none())
      end_of_step(worker, now);
    else
      queue_.push(last);
  }

  // The last update of the step that still runs, where all updates that unlock something are over.
  Event last_update(int worker) {
    Event last;
    for (int s = 0; s < in_.channels; ++s) {
      const Lane& lane = lane_at(worker, in_.lane_of(PS, s));
      if (lane.ends_s.empty() || lane.last_unlocks) continue;
      Event end(lane.ends_s.back(), lane.key);
      if (now_.instant.over(end, lane.turn)) continue;
      if (last.none() || last < end) last = end;
    }
    return last;
  }

  void end_of_step(int worker, double now) {
    steps_.end(worker, now);
    step_ended_ = true;
    if (steps_.ended(worker) < in_.steps) start_random_step(worker, now);
  }

  void record(const Lane& lane, double now) {
    const Chunk& chunk = lane.chunk;
    result_.timeline.push_back({lane.worker, lane.resource, lane.server, chunk.op,
                                static_cast<int32_t>(steps_.now(lane.worker)),
                                lane.on_link() ? chunk.size : 0.0, chunk.start_s,
                                lane.on_link() ? chunk.flow_s : chunk.start_s, now});
  }

  // Ops whose ends were no events, up to the current event.
  void count_hidden_events() {
    for (int w = 0; w < in_.workers && ahead; ++w) result_.events += compute_.ends_until(w, after(now_.event));
    result_.events += downloads_.chunks();
    for (Lane& lane : lanes_)
      if (known_updates_ && lane.resource == PS) result_.events += lane.updates_until(after(now_.event));
  }

  void forget() {
    if (unseen_) downloads_.forget();
  }

  std::vector<double> used() {
    double now = now_.time();
    std::vector<double> out;
    out.reserve(lanes_.size());
    for (int w = 0; w < in_.workers && unseen_; ++w) feed(w);
    for (const Lane& lane : lanes_) {
      double used = lane.used;
      if (unseen_ && lane.resource == DOWNLINK)
        used = downloads_.bytes(lane.worker, lane.server);
      else if (ahead && lane.resource == WORKER)
        used = compute_.used_s(lane.worker, now);
      else if (known_updates_ && lane.resource == PS)
        used = lane.updating_until(now);
      else if (lane.chunk.op >= 0 && !lane.on_link())
        used += now - lane.chunk.start_s;
      else if (lane.chunk.op >= 0 && lane.chunk.flowing && !lane.local)
        used += lane.flow->delivered(now);
      out.push_back(used);
    }
    return out;
  }

  // Run-ahead: computation is reported as one op, if there is any.
  static int counted_ops(const Inputs& in) {
    if (!ahead) return in.ops;
    auto compute = std::count(in.resource.begin(), in.resource.end(), uint8_t{WORKER});
    return in.ops - static_cast<int>(compute) + (compute > 0);
  }

  const Inputs& in_;
  const Poll& poll_;
  bool known_updates_, unseen_;
  Now now_;
  Links<Shares> links_;
  Steps steps_;
  RunAheadCompute compute_;
  std::vector<LinkTraits> traits_;
  UnseenDownloads<Shares> downloads_;
  std::vector<OpInfo> ops_;
  std::vector<Lane> lanes_;
  std::vector<Scheduler> schedulers_;
  Heap<Event> queue_;          // ends that are known for good
  std::vector<Lane*> idle_;    // lanes that may start a chunk at the end of this event
  Groups groups_;
  Barriers barriers_;
  Cores cores_;
  bool step_ended_ = false;
  int showing_ = -1;  // run-ahead: the worker whose next end may have to become an event
  Result result_;
};

}  // namespace planner
