// The event loop: Algorithm 3.1 as reference.py specifies it, event for event.
//
// Some shortcuts leave out events that nobody else can see. `lazy` (compute.hpp): of computation, only ends that
// something outside can see are events. `known_updates`: a server lane is first come first served, so the end of
// an op is known when it queues; only those that unlock something and the last of a step are events. Downloads may be
// quiet (quiet.hpp).
#pragma once
#include <algorithm>
#include <cstdint>
#include <stdexcept>
#include <utility>
#include <vector>

#include "compute.hpp"
#include "events.hpp"
#include "generator.hpp"
#include "lanes.hpp"
#include "quiet.hpp"
#include "schedulers.hpp"
#include "sharing.hpp"
#include "steps.hpp"
#include "waiting_lines.hpp"

namespace planner {

template <class Shares, bool lazy>
class Simulation {
 public:
  Simulation(const Inputs& in, const Feeders& feeders, const Poll& poll)
      : in_(in),
        poll_(poll),
        known_updates_(lazy && !in.tied && in.cores_abound()),
        quiet_(lazy && QuietDownloads<Shares>::applies(in, feeders)),
        links_(in, now_, quiet_, false),
        steps_(in, counted_ops(in)),
        compute_(in, feeders, steps_, lazy),
        traits_(link_traits(in)),
        downloads_(in, now_, poll, links_, traits_, quiet_),
        ops_(in.ops),
        groups_(in),
        barriers_(in),
        cores_(in) {
    for (int op = 0; op < in.ops; ++op)
      ops_[op] = {in.lane_of(in.resource[op], in.server[op]), !in.dependents(op).empty(),
                  in.gated[op] != 0 || in.awaits[op] >= 0 || in.scope[op] >= 0, lazy && feeders.feeds[op] != 0};
    std::vector<size_t> ops_on_lane(in.lanes(), 0);
    for (const OpInfo& op : ops_) ++ops_on_lane[op.lane];
    lanes_.reserve(size_t(in.workers) * in.lanes());
    schedulers_.reserve(size_t(2) * in.workers * in.servers);
    for (int w = 0; w < in.workers; ++w) {
      for (int s = 0; s < in.servers; ++s) add_link_lane(DOWNLINK, w, s);
      add_lane(WORKER, w, -1);
      for (int s = 0; s < in.servers; ++s) add_link_lane(UPLINK, w, s);
      for (int s = 0; s < in.servers; ++s) {
        add_lane(PS, w, s);
        lanes_.back().pool = in.server_pool[s];
      }
      add_lane(HOST, w, -1);
      lanes_.back().pool = in.host_pool[w];
    }
    for (Lane& lane : lanes_)  // links and lazy computation have queues of their own
      if (!lane.on_link() && !(lazy && lane.resource == WORKER))
        lane.queue.reserve(ops_on_lane[in.lane_of(lane.resource, lane.server)]);
    queue_.reserve(lanes_.size());
  }

  Result run() {
    for (int w = 0; w < in_.workers; ++w) queue_.push({in_.start_offsets_s[w], event_key(-1, w, 0)});
    std::vector<double> before(lanes_.size(), 0.0);
    bool warm = in_.warmup_steps == 0;
    double now = 0;
    for (;;) {
      if ((++now_.turn & poll_mask) == 0) poll_();
      Event event = queue_.empty() ? Event{} : queue_.top();
      Event on_link = links_.next();
      bool from_queue = event < on_link;
      if (!from_queue) event = on_link;
      if (event.none()) throw std::logic_error("nothing can happen, yet workers have steps to do");
      if (event.time() > in_.max_time_s) {
        now = in_.max_time_s;
        now_.begin(Event(now, ~uint64_t{0}));
        result_.stopped = Stopped::time;
        break;
      }
      if (from_queue) queue_.take();
      now = event.time();
      now_.begin(event);
      process(event.key, now);
      queue_.settle();
      links_.commit();
      if (step_ended_) {
        step_ended_ = false;
        if (!warm && steps_.all_warm()) {
          warm = true;
          result_.measured_from_s = now;
          before = used(now);
        }
        if (steps_.enough()) break;
      }
      if (result_.events >= in_.max_events) {
        result_.stopped = Stopped::events;
        break;
      }
      if (quiet_) downloads_.forget();
    }
    result_.end_s = now;
    result_.used = used(now);
    count_hidden_events();
    for (size_t i = 0; i < before.size(); ++i) result_.used[i] -= before[i];
    steps_.move_into(result_);
    return std::move(result_);
  }

 private:
  struct OpInfo {
    int32_t lane;   // among the lanes of its worker
    bool unlocks;   // something
    bool may_wait;  // for other workers
    bool feeds;     // lazy: computation waits for it
  };
  void add_lane(int resource, int worker, int server) {
    Lane lane;
    lane.resource = resource;
    lane.worker = worker;
    lane.server = server;
    lane.key = event_key(resource, worker, std::max(server, 0));
    lanes_.push_back(std::move(lane));
  }
  void add_link_lane(int resource, int worker, int server) {
    add_lane(resource, worker, server);
    schedulers_.emplace_back(traits_[(resource == UPLINK) * in_.servers + server]);
    lanes_.back().scheduler = &schedulers_.back();
    lanes_.back().local = in_.local[size_t(worker) * in_.servers + server] != 0;
    lanes_.back().flow = &links_.flow(resource == UPLINK, worker, server);
  }
  Lane& lane_at(int worker, int lane) { return lanes_[size_t(worker) * in_.lanes() + lane]; }
  static int direction(const Lane& lane) { return lane.resource == UPLINK; }

  void process(uint64_t key, double now) {
    int worker = key_worker(key), resource = key_resource(key);
    if (resource < 0)
      start_random_step(worker, now);
    else if (lazy && resource == WORKER)
      computation_shows(worker, now);
    else if (quiet_ && resource == DOWNLINK)
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
    if (lazy && showing_ >= 0) show_next(std::exchange(showing_, -1));
  }

  void start_random_step(int worker, double now) {
    steps_.begin(worker, now);
    if constexpr (lazy) compute_.begin(worker, now, now_.turn);
    if (known_updates_)
      for (int s = 0; s < in_.servers; ++s) lane_at(worker, in_.lane_of(PS, s)).begin_updates();
    for (int32_t op : steps_.roots(worker))
      if (quiet_ && in_.resource[op] == DOWNLINK)
        downloads_.add(worker, op);
      else
        ready(worker, op);
    if (quiet_) downloads_.start(steps_);
    if (lazy) show_soon(worker);
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

  // Lazy: put the next end that shows into the queue, unless it is there.
  void show_soon(int worker) {
    Lane& computation = lane_at(worker, in_.lane_of(WORKER, -1));
    if (computation.deferred) return;
    Event next = compute_.has_visible(worker) ? compute_.next_visible(worker) : Event{};
    if (!next.none() && next.time() != computation.shows_s) queue_.push(next);
    computation.shows_s = next.none() ? -1 : next.time();
  }

  void computation_shows(int worker, double now) {
    Lane& computation = lane_at(worker, in_.lane_of(WORKER, -1));
    if (now != computation.shows_s) return;  // it ran ahead too far, and this end was put off
    computation.shows_s = -1;
    computation.deferred = false;
    auto [end_s, op, last] = compute_.take_visible(worker);
    release(worker, compute_.unlocked_by(op));
    if (!last)
      showing_ = worker;
    else if (steps_.op_ended(worker))
      all_ended(worker, now);
  }

  // The next end that shows is an event, unless it would only add an upload to the queue of a busy lane: then
  // it is enough to queue it before that lane looks for its next chunk.
  void show_next(int worker) {
    Lane& computation = lane_at(worker, in_.lane_of(WORKER, -1));
    computation.deferred = computation.shows_s < 0 && compute_.shows_uploads_only() && all_uplinks_busy(worker);
    show_soon(worker);
  }
  bool all_uplinks_busy(int worker) {
    for (int s = 0; s < in_.servers; ++s)
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

  // For other workers? A joint op goes to its group's leader.
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
    if (lazy && lane.resource == WORKER) return compute_.enqueue(worker, op, now_.event.time());
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
    if (lane.on_link())
      lane.scheduler->add(op);
    else
      lane.queue.push(op);
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
      if (!chunk.flowing) {  // only its overhead is over
        start_flow(lane, now);
        return;
      }
      if (lazy && lane.resource == UPLINK) show_deferred(lane.worker);
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

  // known_updates: the end of one that unlocks something, or the last end of the step.
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

  // The last update of the step that still runs, where all those that unlock something are over.
  Event last_update(int worker) {
    Event last;
    for (int s = 0; s < in_.servers; ++s) {
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
    for (int w = 0; w < in_.workers && lazy; ++w) result_.events += compute_.ends_until(w, after(now_.event));
    result_.events += downloads_.chunks();
    for (Lane& lane : lanes_)
      if (known_updates_ && lane.resource == PS) result_.events += lane.updates_until(after(now_.event));
  }

  std::vector<double> used(double now) {
    std::vector<double> out;
    out.reserve(lanes_.size());
    for (int w = 0; w < in_.workers && quiet_; ++w) feed(w);
    for (const Lane& lane : lanes_) {
      double used = lane.used;
      if (quiet_ && lane.resource == DOWNLINK)
        used = downloads_.bytes(lane.worker, lane.server);
      else if (lazy && lane.resource == WORKER)
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

  // Lazy: computation is reported as one op, if there is any.
  static int counted_ops(const Inputs& in) {
    if (!lazy) return in.ops;
    auto compute = std::count(in.resource.begin(), in.resource.end(), uint8_t{WORKER});
    return in.ops - static_cast<int>(compute) + (compute > 0);
  }

  const Inputs& in_;
  const Poll& poll_;
  bool known_updates_, quiet_;
  Now now_;
  Links<Shares> links_;
  Steps steps_;
  LazyCompute compute_;
  std::vector<LinkTraits> traits_;
  QuietDownloads<Shares> downloads_;
  std::vector<OpInfo> ops_;
  std::vector<Lane> lanes_;
  std::vector<Scheduler> schedulers_;
  Heap<Event> queue_;          // ends that are known for good
  std::vector<Lane*> idle_;    // lanes that may start a chunk at the end of this event
  Groups groups_;
  Barriers barriers_;
  Cores cores_;
  bool step_ended_ = false;
  int showing_ = -1;  // lazy: the worker whose next end may have to become an event
  Result result_;
};

}  // namespace planner
