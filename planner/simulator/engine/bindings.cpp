// Python bindings of the event engine.
#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include <algorithm>
#include <chrono>
#include <stdexcept>
#include <string>

#include "periods.hpp"
#include "simulation.hpp"
#include "unison.hpp"

namespace nb = nanobind;
using namespace nb::literals;

namespace {

// Arrays of the Python inputs, kept alive while the engine looks at them.
class Arrays {
 public:
  template <class T>
  std::span<const T> view(nb::handle object) {
    auto array = nb::cast<nb::ndarray<const T, nb::c_contig, nb::device::cpu>>(object);
    kept_.push_back(nb::borrow(object));
    return {array.data(), array.size()};
  }
  std::span<const uint8_t> flags(nb::handle object) {
    auto array = nb::cast<nb::ndarray<const bool, nb::c_contig, nb::device::cpu>>(object);
    kept_.push_back(nb::borrow(object));
    return {reinterpret_cast<const uint8_t*>(array.data()), array.size()};
  }

 private:
  std::vector<nb::object> kept_;
};

template <class T>
T get(nb::handle object, const char* name) {
  return nb::cast<T>(object.attr(name));
}

planner::Kind kind_of(const std::string& name) {
  using planner::Kind;
  static constexpr std::pair<const char*, Kind> kinds[] = {
      {"fifo", Kind::fifo},     {"multiplexed", Kind::multiplexed}, {"ordered", Kind::ordered},
      {"sliced", Kind::sliced}, {"credit", Kind::credit},           {"blocks", Kind::blocks}};
  for (auto [known, kind] : kinds)
    if (name == known) return kind;
  throw std::invalid_argument("unknown policy " + name);
}

int small(int64_t value, int64_t limit, const char* what) {
  if (value > limit)
    throw nb::value_error((std::string("the engine holds at most ") + std::to_string(limit) + " " + what +
                           ", not " + std::to_string(value)).c_str());
  return static_cast<int>(value);
}

void read_options(planner::Inputs& in, nb::handle options) {
  in.seed = get<uint64_t>(options, "seed");
  in.run = get<uint64_t>(options, "run");
  in.steps = small(get<int64_t>(options, "steps"), 1 << 30, "steps");
  in.warmup_steps = get<int64_t>(options, "warmup_steps");
  in.until_all = get<std::string>(options, "until") == "all";
  in.timeline = get<bool>(options, "timeline");
  in.local_bytes_per_s = get<double>(options, "local_bytes_per_s");
  in.max_time_s = get<double>(options, "max_time_s");
  if (!options.attr("max_events").is_none()) in.max_events = get<int64_t>(options, "max_events");
}

void read_network(planner::Inputs& in, nb::handle inputs) {
  nb::object cluster = inputs.attr("cluster");
  for (nb::handle node : cluster.attr("nodes")) {
    in.nic_capacity.push_back(get<double>(node, "egress_bytes_per_s"));
    in.nic_capacity.push_back(get<double>(node, "ingress_bytes_per_s"));
  }
  in.flow_bytes_per_s = get<double>(inputs, "flow_bytes_per_s");
  nb::object shares = inputs.attr("equal_shares");
  in.equal_shares = !shares.is_none();
  for (int d = 0; d < 2 && in.equal_shares; ++d) {
    in.capacity[d] = get<double>(shares[d], "capacity_bytes_per_s");
    in.flow_limit[d] = get<double>(shares[d], "flow_bytes_per_s");
  }
}

planner::Inputs read(nb::handle inputs, Arrays& arrays) {
  planner::Inputs in;
  nb::object profile = inputs.attr("profile"), policy = inputs.attr("policy");
  in.speeds = get<std::vector<double>>(inputs, "speeds");
  in.workers = small(static_cast<int64_t>(in.speeds.size()), planner::max_workers, "workers");
  in.channels = small(get<int64_t>(profile, "servers"), planner::max_channels, "channels");
  in.ops = small(get<int64_t>(profile, "ops"), 1 << 28, "ops");
  in.rows = small(get<int64_t>(profile, "steps"), 1 << 30, "steps of a profile");
  in.resource = arrays.view<uint8_t>(profile.attr("resource"));
  in.server = arrays.view<int32_t>(profile.attr("server"));
  in.bytes = arrays.view<int64_t>(profile.attr("bytes"));
  in.durations = arrays.view<double>(profile.attr("durations_s"));
  if (!profile.attr("order").is_none()) in.order = arrays.view<int32_t>(profile.attr("order"));
  in.waiting = arrays.view<int32_t>(inputs.attr("waiting"));
  in.dependent_start = arrays.view<int32_t>(inputs.attr("dependent_start"));
  in.dependent_index = arrays.view<int32_t>(inputs.attr("dependent_index"));
  in.roots = arrays.view<int32_t>(inputs.attr("roots"));
  in.transfers = arrays.view<int32_t>(inputs.attr("transfers"));
  in.publishes = arrays.view<int32_t>(inputs.attr("publishes"));
  in.awaits = arrays.view<int32_t>(inputs.attr("awaits"));
  in.publishers = arrays.view<int32_t>(inputs.attr("publishers"));
  in.gated = arrays.flags(inputs.attr("gated"));
  in.local = arrays.flags(inputs.attr("local"));
  in.start_offsets_s = get<std::vector<double>>(inputs, "start_offsets_s");
  in.tied = get<bool>(inputs, "tied");
  in.lockstep = get<bool>(inputs, "lockstep");
  in.fairness_sigma = get<double>(inputs, "fairness_sigma");
  in.scope = arrays.view<int32_t>(profile.attr("scope"));
  in.leaders = arrays.view<int32_t>(inputs.attr("leaders"));
  in.latency = arrays.view<double>(profile.attr("latency_s"));
  if (std::ranges::all_of(in.latency, [](double seconds) { return seconds == 0; })) in.latency = {};
  in.pool_cores = arrays.view<int32_t>(inputs.attr("pool_cores"));
  in.server_pool = arrays.view<int32_t>(inputs.attr("server_pool"));
  in.host_pool = arrays.view<int32_t>(inputs.attr("host_pool"));
  in.near = arrays.view<int32_t>(inputs.attr("near"));
  in.far = arrays.view<int32_t>(inputs.attr("far"));
  in.policy.kind = kind_of(get<std::string>(policy, "kind"));
  for (int up = 0; up < 2; ++up) in.policy.overhead_s[up] = nb::cast<double>(policy.attr("overhead_s")[nb::int_(up)]);
  in.policy.chunk_bytes = get<int64_t>(policy, "chunk_bytes");
  in.policy.credit_bytes = get<int64_t>(policy, "credit_bytes");
  in.policy.rank = arrays.view<double>(policy.attr("rank"));
  in.policy.block = arrays.view<int32_t>(policy.attr("block"));
  in.policy.place = arrays.view<int32_t>(policy.attr("place"));
  in.policy.members = arrays.view<int32_t>(policy.attr("members"));
  for (int32_t waiting : in.waiting) small(waiting, UINT16_MAX, "dependencies of one op");
  read_network(in, inputs);
  read_options(in, inputs.attr("options"));
  return in;
}

// A one-dimensional numpy array that owns a vector's memory.
template <class T>
nb::object to_numpy(std::vector<T>&& values) {
  auto* owned = new std::vector<T>(std::move(values));
  nb::capsule owner(owned, [](void* p) noexcept { delete static_cast<std::vector<T>*>(p); });
  return nb::cast(nb::ndarray<nb::numpy, T, nb::ndim<1>>(owned->data(), {owned->size()}, owner));
}
template <class T>
nb::list to_list(std::vector<std::vector<T>>& rows) {
  nb::list out;
  for (auto& row : rows) out.append(to_numpy(std::move(row)));
  return out;
}

// The rows as raw bytes; Python views them with the dtype of the timeline.
nb::object timeline_bytes(const std::vector<planner::TimelineRow>& rows) {
  return nb::bytes(reinterpret_cast<const char*>(rows.data()), rows.size() * sizeof(planner::TimelineRow));
}

// The way that a run goes: in unison, if there is an order of computation, else in periods, run ahead, or plainly.
struct Way {
  std::vector<int32_t> unison;
  bool periods, ahead;

  const char* name() const { return !unison.empty() ? "unison " : periods ? "lazy " : ahead ? "run-ahead " : ""; }
};

template <class Shares>
planner::Result simulate(const planner::Inputs& in, const planner::Feeders& feeders, const planner::TrainingStep& step,
                         const planner::Poll& poll, const Way& way) {
  if (!way.unison.empty()) return planner::Unison<Shares>(in, way.unison, poll).run();
  if (way.periods) return planner::Periods<Shares>(in, step, poll).run();
  return way.ahead ? planner::Simulation<Shares, true>(in, feeders, poll).run()
                   : planner::Simulation<Shares, false>(in, feeders, poll).run();
}

nb::dict run(nb::handle inputs, nb::callable check) {
  Arrays arrays;
  planner::Inputs in = read(inputs, arrays);
  // Reading a clock is cheap, taking the GIL is not: another thread may hold the GIL.
  auto asked = std::chrono::steady_clock::now();
  planner::Poll poll = [&asked, &check] {
    auto now = std::chrono::steady_clock::now();
    if (now - asked < std::chrono::milliseconds(30)) return;
    nb::gil_scoped_acquire gil;
    if (PyErr_CheckSignals() != 0) throw nb::python_error();
    check();
    asked = std::chrono::steady_clock::now();
  };
  planner::Result result;
  std::string path;
  {
    nb::gil_scoped_release release;
    planner::Feeders feeders(in);
    planner::TrainingStep step(in, feeders);
    // A timeline shows every op and a cap counts every event: for either all events must be in the queue.
    Way way{planner::Unison<planner::EqualShares>::order_of(in),
            planner::Periods<planner::EqualShares>::applies(in, step),
            !in.timeline && in.max_events == std::numeric_limits<int64_t>::max()};
    path = std::string(way.name()) + (in.equal_shares ? "virtual time" : "max-min");
    auto by = in.equal_shares                       ? simulate<planner::EqualShares>
              : planner::MaxMinShares::applies(in) ? simulate<planner::MaxMinShares>
                                                   : simulate<planner::MixedShares>;
    result = by(in, feeders, step, poll, way);
  }
  static constexpr const char* stopped[] = {"steps", "time", "events"};
  nb::dict out;
  out["step_starts_s"] = to_list(result.starts_s);
  out["step_ends_s"] = to_list(result.ends_s);
  out["staleness"] = to_list(result.staleness);
  out["end_s"] = result.end_s;
  out["measured_from_s"] = result.measured_from_s;
  out["used"] = to_numpy(std::move(result.used));
  out["events"] = result.events;
  out["stopped"] = stopped[static_cast<int>(result.stopped)];
  out["path"] = path;
  out["timeline"] = in.timeline ? timeline_bytes(result.timeline) : nb::none();
  return out;
}

}  // namespace

NB_MODULE(_engine, m) {
  m.doc() = "Event engine of planner's simulator";
  m.def("run", &run, "inputs"_a, "check"_a,
        "One run, from planner.simulator.inputs.Inputs; `check` raises if it is to stop");
}
