/* A daemon that cut every tie and holds a port of this machine and a shared memory segment that goes with it. */
#include <arpa/inet.h>
#include <signal.h>
#include <stdio.h>
#include <sys/ipc.h>
#include <sys/shm.h>
#include <sys/socket.h>
#include <unistd.h>

int main(void)
{
	struct sockaddr_in address = { .sin_family = AF_INET };
	socklen_t length = sizeof(address);
	int listener, memory;

	if (fork() != 0)
		for (;;)
			pause();
	setsid();
	if (fork() != 0)
		_exit(0);
	signal(SIGTERM, SIG_IGN);
	listener = socket(AF_INET, SOCK_STREAM, 0);
	address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
	if (bind(listener, (struct sockaddr *)&address, sizeof(address)) != 0 || listen(listener, 1) != 0)
		return 2;
	if (getsockname(listener, (struct sockaddr *)&address, &length) != 0)
		return 3;
	memory = shmget(IPC_PRIVATE, 4096, IPC_CREAT | 0600);
	if (memory < 0 || shmat(memory, 0, 0) == (void *)-1 || shmctl(memory, IPC_RMID, 0) != 0)
		return 4;
	printf("%d %d\n", ntohs(address.sin_port), memory);
	fflush(stdout);
	for (;;)
		pause();
}
