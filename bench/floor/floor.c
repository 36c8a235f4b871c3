// floor ADDRESS PORT N OPEN requests /robots.txt of N hosts over a fresh connection each, OPEN at a time, by epoll in
// one thread. It parses nothing and keeps nothing: below its processor time is only the kernel.
#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

static void fail(const char *what) {
	perror(what);
	exit(1);
}

static void begin(int poll, const struct sockaddr_in *to) {
	struct epoll_event e = {.events = EPOLLOUT};
	int one = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
	struct linger reset = {1, 0}; // no TIME_WAIT
	e.data.fd = one;
	if (one < 0 || setsockopt(one, SOL_SOCKET, SO_LINGER, &reset, sizeof reset) < 0)
		fail("socket");
	if (connect(one, (const struct sockaddr *)to, sizeof *to) < 0 && errno != EINPROGRESS)
		fail("connect");
	if (epoll_ctl(poll, EPOLL_CTL_ADD, one, &e) < 0)
		fail("epoll_ctl");
}

int main(int argc, char **argv) {
	struct sockaddr_in to = {.sin_family = AF_INET};
	if (argc != 5 || inet_pton(AF_INET, argv[1], &to.sin_addr) != 1)
		return 2;
	to.sin_port = htons(atoi(argv[2]));
	long left = atol(argv[3]), begun = 0, asked = 0, answered = 0, open = atol(argv[4]);
	int poll = epoll_create1(0);
	for (; begun < left && begun < open; begun++)
		begin(poll, &to);
	while (answered < left) {
		struct epoll_event events[256];
		int n = epoll_wait(poll, events, 256, 15000);
		if (n <= 0)
			fail("epoll_wait");
		for (int i = 0; i < n; i++) {
			static char buffer[65536];
			int one = events[i].data.fd;
			if (events[i].events & EPOLLOUT) {
				struct epoll_event e = {.events = EPOLLIN, .data.fd = one};
				int length = snprintf(buffer, sizeof buffer,
					"GET /robots.txt HTTP/1.1\r\nHost: h%ld.hot.test:%s\r\nUser-Agent: floor\r\nConnection: close\r\n\r\n", ++asked, argv[2]);
				if (write(one, buffer, length) != length || epoll_ctl(poll, EPOLL_CTL_MOD, one, &e) < 0)
					fail("write");
				continue;
			}
			ssize_t got;
			while ((got = read(one, buffer, sizeof buffer)) > 0)
				;
			if (got < 0 && errno == EAGAIN)
				continue;
			if (got < 0)
				fail("read");
			close(one);
			answered++;
			if (begun < left) {
				begin(poll, &to);
				begun++;
			}
		}
	}
	return 0;
}
