// SPDX-License-Identifier: MIT
/// \file
/// The number of CPUs that a process may use: its mask, and the quotas of its control groups.
#include "pto/wsp/sched/cpus.hpp"

#include <sys/stat.h>
#include <unistd.h>

#include "check.hpp"

namespace test_cpus {

using namespace pto::wsp;

namespace {

/// Files below a folder of its own.
class Folder {
 public:
  Folder() {
    char name[] = "/tmp/pto-cpus-XXXXXX";
    CHECK(mkdtemp(name) != nullptr);
    root_ = name;
  }
  ~Folder() { CHECK(std::system(("rm -r " + root_).c_str()) == 0); }
  void write(const std::string& path, const std::string& text) const {
    const std::string file = root_ + path;
    CHECK(std::system(("mkdir -p $(dirname " + file + ")").c_str()) == 0);
    std::ofstream(file) << text;
  }
  double quota() const { return sched::quota_cpus(root_ + "/proc", root_ + "/cgroup"); }

 private:
  std::string root_;
};

}  // namespace

TEST(the_least_quota_of_a_group_and_those_around_it_counts) {
  const Folder folder;
  folder.write("/proc/self/cgroup", "0::/pods/one\n");
  CHECK(folder.quota() == 0);
  folder.write("/cgroup/pods/one/cpu.max", "max 100000\n");
  CHECK(folder.quota() == 0);
  folder.write("/cgroup/pods/cpu.max", "250000 100000\n");
  CHECK(folder.quota() == 2.5);
  folder.write("/cgroup/pods/one/cpu.max", "150000 100000\n");
  CHECK(folder.quota() == 1.5);
  folder.write("/cgroup/cpu.max", "50000 100000\n");
  CHECK(folder.quota() == 0.5);
}

TEST(quotas_of_the_first_version_of_control_groups_count) {
  const Folder folder;
  folder.write("/proc/self/cgroup", "5:memory:/x\n4:cpu,cpuacct:/x\n");
  folder.write("/cgroup/cpu,cpuacct/x/cpu.cfs_period_us", "100000\n");
  folder.write("/cgroup/cpu,cpuacct/x/cpu.cfs_quota_us", "-1\n");
  CHECK(folder.quota() == 0);
  folder.write("/cgroup/cpu,cpuacct/x/cpu.cfs_quota_us", "300000\n");
  CHECK(folder.quota() == 3);
}

TEST(the_default_number_of_workers_follows_the_mask) {
  cpu_set_t all, one;
  CHECK(sched_getaffinity(0, sizeof all, &all) == 0);
  int cpu = 0;
  while (!CPU_ISSET(cpu, &all)) ++cpu;
  CPU_ZERO(&one);
  CPU_SET(cpu, &one);
  CHECK(sched::default_workers() >= 1);
  CHECK(sched_setaffinity(0, sizeof one, &one) == 0);
  CHECK_EQ(sched::default_workers(), 1u);
  CHECK(sched_setaffinity(0, sizeof all, &all) == 0);
}

}  // namespace test_cpus
