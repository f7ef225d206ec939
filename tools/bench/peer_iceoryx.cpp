/* Eclipse iceoryx: a publisher and a subscriber each way. Blocking is by a WaitSet, which is attached only
 * while an end blocks, for a publisher pays for waking whoever is attached. RouDi, its daemon, is started
 * here and ends with this process. */
#include <cstdlib>
#include <fcntl.h>
#include <iceoryx_hoofs/log/logmanager.hpp>
#include <iceoryx_posh/popo/publisher.hpp>
#include <iceoryx_posh/popo/subscriber.hpp>
#include <iceoryx_posh/popo/wait_set.hpp>
#include <iceoryx_posh/runtime/posh_runtime.hpp>
#include <signal.h>
#include <string>
#include <sys/prctl.h>
#include <unistd.h>

#include "tools/bench/pair_loops.h"
#include "tools/bench/peer.h"

struct Line {
	uint64_t word[8];
};

using Publisher = iox::popo::Publisher<Line>;
using Subscriber = iox::popo::Subscriber<Line>;

static Publisher *out;
static Subscriber *in;
static iox::popo::WaitSet<> *waiter;
static bool attached;

static int prepare(void)
{
	pid_t pid = fork();
	if (pid < 0)
		return -EAGAIN;
	if (pid == 0) {
		int null = open("/dev/null", O_RDWR | O_CLOEXEC);
		prctl(PR_SET_PDEATHSIG, SIGTERM); /* not SIGKILL: it removes its shared memory */
		dup2(null, STDIN_FILENO);
		dup2(null, STDOUT_FILENO);
		dup2(null, STDERR_FILENO);
		for (int fd = STDERR_FILENO + 1; fd < 64; fd++)
			close(fd);
		execlp("iox-roudi", "iox-roudi", "--monitoring-mode", "off", static_cast<char *>(nullptr));
		_exit(127);
	}
	usleep(1000000);
	return kill(pid, 0) ? -ENOENT : 0;
}

static void name_runtime(const char *end)
{
	const std::string name = std::string("tokenring-bench-") + end + "-" + std::to_string(getpid());
	iox::log::LogManager::GetLogManager().SetDefaultLogLevel(iox::log::LogLevel::kError,
								 iox::log::LogLevelOutput::kHideLogLevel);
	iox::runtime::PoshRuntime::initRuntime(
	    iox::RuntimeName_t(iox::cxx::TruncateToCapacity, name.c_str()));
}

static int open_end(bool is_near)
{
	name_runtime(is_near ? "near" : "far");
	const iox::capro::ServiceDescription there("tokenring", "bench", "there");
	const iox::capro::ServiceDescription back("tokenring", "bench", "back");
	out = new Publisher(is_near ? there : back);
	in = new Subscriber(is_near ? back : there);
	waiter = new iox::popo::WaitSet<>();
	for (int tries = 0; tries < 5000; tries++) {
		if (out->hasSubscribers() && in->getSubscriptionState() == iox::SubscribeState::SUBSCRIBED)
			return 0;
		usleep(1000);
	}
	return -ETIMEDOUT;
}

static int send_message(const void *message, bool)
{
	Line line;
	memcpy(&line, message, sizeof line);
	return out->publishCopyOf(line).has_error() ? -EIO : 1;
}

static int take(void *message)
{
	auto sample = in->take();
	if (sample.has_error())
		return 0;
	memcpy(message, sample.value().get(), sizeof(Line));
	return 1;
}

static int receive_message(void *message, bool block)
{
	if (block != attached) {
		if (block && waiter->attachState(*in, iox::popo::SubscriberState::HAS_DATA).has_error())
			return -EIO;
		if (!block)
			waiter->detachState(*in, iox::popo::SubscriberState::HAS_DATA);
		attached = block;
	}
	int r = take(message);
	while (block && !r) {
		waiter->wait();
		r = take(message);
	}
	return r;
}

PAIR_LOOPS(iceoryx, send_message, receive_message)

const struct pair_transport pair_peer = {"iceoryx", prepare, open_end, iceoryx_near, iceoryx_far};
