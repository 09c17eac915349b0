/* Traces a child of its own for ever: the child stands still, and only its tracer, or a kill, moves it. */
#include <signal.h>
#include <stdio.h>
#include <sys/ptrace.h>
#include <sys/wait.h>
#include <unistd.h>

int main(void)
{
	int status;
	pid_t child;

	signal(SIGTERM, SIG_IGN);
	child = fork();
	if (child == 0)
		for (;;)
			pause();
	if (child < 0 || ptrace(PTRACE_ATTACH, child, 0, 0) != 0)
		return 2;
	if (waitpid(child, &status, 0) != child || !WIFSTOPPED(status))
		return 3;
	printf("%d %d\n", (int)getpid(), (int)child);
	fflush(stdout);
	for (;;)
		pause();
}
