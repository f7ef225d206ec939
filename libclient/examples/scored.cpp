// Which of two words comes next? One forward pass, an answer by a deadline or a refusal: what a trading program asks.
#include <cstdio>
#include <ctime>
#include <memory>
#include <stdexcept>
#include <string>
#include <vector>
#include <tokenring/tokenring.h>

namespace
{
struct Close {
	void operator()(tr_client *client) const
	{
		tr_close(client);
	}
};
using Client = std::unique_ptr<tr_client, Close>;

int check(int result, const char *what)
{
	if (result < 0)
		throw std::runtime_error(std::string(what) + ": " + tr_strerror(result));
	return result;
}

Client open()
{
	tr_client *client = nullptr;
	check(tr_open(&client, nullptr, nullptr), "tr_open");
	return Client(client);
}

std::vector<uint32_t> tokenize(tr_client *client, const std::string &text, uint32_t flags)
{
	std::vector<uint32_t> tokens(text.size() + 2);
	size_t n = 0;
	check(tr_tokenize(client, 0, text.data(), text.size(), flags, tokens.data(), tokens.size(), &n), "tr_tokenize");
	tokens.resize(n);
	return tokens;
}

uint64_t in_milliseconds(unsigned milliseconds)
{
	timespec now;
	clock_gettime(CLOCK_MONOTONIC, &now);
	return uint64_t(now.tv_sec) * 1000000000 + uint64_t(now.tv_nsec) + uint64_t(milliseconds) * 1000000;
}

tr_event score(tr_client *client, const std::vector<uint32_t> &prompt, const std::vector<uint32_t> &candidates)
{
	tr_request_extra extra = {};
	extra.size = sizeof extra;
	extra.tokens = prompt.data();
	extra.n_tokens = uint32_t(prompt.size());
	extra.candidates = candidates.data();
	extra.n_candidates = uint32_t(candidates.size());
	tr_request request = {};
	request.size = sizeof request;
	request.op = TR_SCORE;
	request.deadline_ns = in_milliseconds(2000);
	request.extra = &extra;
	uint64_t id;
	check(tr_submit(client, &request, &id), "tr_submit");
	tr_event event = {};
	event.size = sizeof event;
	if (check(tr_wait(client, &event, 1, 5000000000), "tr_wait") == 0)
		throw std::runtime_error("no answer in 5 s");
	if (event.status < 0)
		throw std::runtime_error(tr_strreason(event.reason));
	return event;
}
} // namespace

int main()
try {
	Client client = open();
	const std::vector<uint32_t> prompt = tokenize(client.get(), "The market opened higher and the shares went", TR_TEXT_BOS);
	const std::vector<uint32_t> candidates = {tokenize(client.get(), " up", 0).at(0),
						  tokenize(client.get(), " down", 0).at(0)};
	const tr_event event = score(client.get(), prompt, candidates);
	if (event.n_scored != 2)
		throw std::runtime_error("not two scores");
	std::printf("up %.3f, down %.3f\n", double(event.scored[0].value), double(event.scored[1].value));
	return 0;
} catch (const std::exception &error) {
	std::fprintf(stderr, "scored: %s\n", error.what());
	return 1;
}
