/* A sentence for every error that the library returns: what it means here, and the remedy. */
#include <errno.h>
#include <string.h>

#include "libclient/client.h"

/* X(errno, sentence): the calls of tokenring.h return these, events carry them in `status`. */
#define ERRORS(X)                                                                                            \
	X(ECONNRESET,                                                                                        \
	  "the daemon closed the channel or died; tr_reconnect opens a new one once it runs again")          \
	X(ECONNABORTED,                                                                                      \
	  "the daemon ended the channel for a breach of the protocol; tr_end_reason says which, "            \
	  "tr_reconnect opens a new one")                                                                    \
	X(EHOSTDOWN,                                                                                         \
	  "the daemon's heartbeat is over a second old: it hangs, or the machine is overloaded; try "        \
	  "again, and look at the daemon if it stays so")                                                    \
	X(ESTALE, "the client was opened before a fork, by the parent; open one in the child")               \
	X(EINVAL,                                                                                            \
	  "an argument is out of range, a struct's size is not known, or a byte that must be zero is "       \
	  "not; clear structs and set their size")                                                           \
	X(ENOENT,                                                                                            \
	  "there is no socket at the address, or no model under the number; start tokenringd, or name "      \
	  "its socket in TOKENRING_SOCKET")                                                                  \
	X(ECONNREFUSED, "no daemon listens at the socket; start tokenringd")                                 \
	X(ETIMEDOUT,                                                                                         \
	  "the daemon did not answer in time: it is overloaded or hangs; try again or raise timeout_ms")     \
	X(EPROTONOSUPPORT,                                                                                   \
	  "daemon and library speak different versions of the channel; install both of one "                 \
	  "version")                                                                                         \
	X(EPROTO,                                                                                            \
	  "the daemon said something that does not add up; install daemon and library of one version")       \
	X(EUSERS,                                                                                            \
	  "the limit of channels is reached; close some, or raise max_clients or max_clients_per_uid "       \
	  "of the daemon")                                                                                   \
	X(EDQUOT, "channels of this user's processes hold the memory allowed; close some, or raise "         \
		  "memory_per_uid of the daemon")                                                            \
	X(ENOMEM, "there is no memory for it, here or in the daemon; free some, or ask for less")            \
	X(EMFILE, "this process has no descriptor left; close some, or raise its limit (ulimit -n)")         \
	X(ENFILE, "the daemon has no descriptor left, or the machine; raise LimitNOFILE or fs.file-max")     \
	X(EACCES,                                                                                            \
	  "this user may not open the socket; join the group that owns it, or see the option access of "     \
	  "the daemon")                                                                                      \
	X(EPERM, "the daemon's configuration does not allow it to this user; ask who runs the daemon")       \
	X(ENAMETOOLONG, "the socket's path is longer than 107 bytes; use a shorter one")                     \
	X(ENOTSOCK, "what lies at the address is no socket; name that of tokenringd")                        \
	X(EPROTOTYPE, "the socket at the address is of another kind; name that of tokenringd")               \
	X(EAGAIN,                                                                                            \
	  "there is no room now, or the model is not loaded yet; collect events with tr_poll and try "       \
	  "again")                                                                                           \
	X(E2BIG,                                                                                             \
	  "the request can never fit the channel's arena; shorten it, or raise arena_bytes of the daemon")   \
	X(EINTR, "a signal arrived; call again")                                                             \
	X(ENOSPC, "the buffer is too small, or no number is left; give a larger buffer, or use what is "     \
		  "registered")                                                                              \
	X(EMSGSIZE, "the text or the prompt is longer than allowed; cut it")                                 \
	X(EOPNOTSUPP,                                                                                        \
	  "this daemon does not support the operation; leave it out, or install a later version")            \
	X(ETIME, "the deadline passed or cannot be met; give more time or ask for fewer tokens")             \
	X(ENOBUFS, "the tokens were not consumed in time; poll more often, or raise client_stall_ms of the " \
		   "daemon")                                                                                 \
	X(ECANCELED, "the request was cancelled; submit it again if it is wanted")                           \
	X(ESHUTDOWN, "the daemon is stopping; tr_reconnect opens a new channel once it runs again")          \
	X(EIO, "the daemon could not read or run its model; its log says why")                               \
	X(EDOM, "the model computed what is not a number; look at the weights and the parameters")

const char *tr_strerror(int error)
{
	const char *sentence;

	switch (error < 0 ? -error : error) {
	case 0:
		return "no error";
#define X(number, text) \
	case number:    \
		return text;
		ERRORS(X)
#undef X
	}
	/* What the kernel said and no line above expects. */
	sentence = strerrordesc_np(error < 0 ? -error : error);
	return sentence ? sentence : "an error that this version of the library does not know";
}
