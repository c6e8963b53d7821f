/*
 * The program in the guest: verbs on the kernel's Soft-RoCE device, one command a line.
 *
 * Each line of standard input is a command with `key=value` words (numbers as C writes them); each gets
 * one line of answer, "ok [key=value...]" or "error WHAT". The other end of a test asks for one verb after
 * the other, so what both ends do, and when, stands in one place: the test.
 *
 *   make type=rc|uc|ud own=ADDRESS [access=7] [qkey=N]      queue pair in INIT, memory, completion queue
 *   connect peer=ADDRESS qpn=N psn=N own_psn=N mtu=BYTES [timeout= retry= rnr= min_rnr= rd=]
 *   recv id=N at=OFFSET len=N
 *   post id=N op=NAME at=OFFSET len=N [raddr= rkey= imm= add= compare= swap= qpn= qkey= fence= solicited=]
 *   bind id=N at=OFFSET len=N access=N                       a type 2 window; answers its key
 *   poll ms=N                                                the oldest completion, or "ok none=1"
 *   fill at= len= seed=    check at= len= seed=              a pattern in memory; check counts wrong bytes
 *   put at= value=         get at=                           eight bytes in the order of this machine
 *   state                  event                             of the queue pair; the oldest async event
 *   free                   quit
 *   sh LINE                a line for the shell; answers its exit code when it has ended
 *   start LINE             the same, but what was started is waited for by
 *   wait ms=N              "ok running=1", or "ok code=N text=..." with what it has printed, bytes other than
 *                          letters and digits as %XX; a code above 128 is a signal's
 *   stop                   ends it
 */
#include <arpa/inet.h>
#include <ctype.h>
#include <errno.h>
#include <fcntl.h>
#include <infiniband/verbs.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum { ROOM = 1 << 20, DEPTH = 64, MAX_WORDS = 32 };

static struct ibv_context *device;
static struct ibv_pd *pd;
static struct ibv_cq *cq;
static struct ibv_mr *mr;
static struct ibv_qp *qp;
static struct ibv_mw *mw;
static struct ibv_ah *ah;
static uint8_t *memory;
static int gid_index;
static char *words[MAX_WORDS];
static int word_count;

static void answer(const char *format, ...)
{
	va_list list;
	va_start(list, format);
	vprintf(format, list);
	va_end(list);
	putchar('\n');
	fflush(stdout);
}

static int failed(const char *what, int error)
{
	answer("error %s: %s", what, strerror(error));
	return -1;
}

static const char *text(const char *key)
{
	size_t len = strlen(key);
	for (int i = 1; i < word_count; i++)
		if (!strncmp(words[i], key, len) && words[i][len] == '=')
			return words[i] + len + 1;
	return NULL;
}

static uint64_t number(const char *key, uint64_t otherwise)
{
	const char *value = text(key);
	return value ? strtoull(value, NULL, 0) : otherwise;
}

/* Zero if the range at= len= is not in memory. */
static int in_memory(void)
{
	return number("at", 0) <= ROOM && number("len", 8) <= ROOM - number("at", 0);
}

static int to_gid(const char *address, union ibv_gid *gid)
{
	memset(gid, 0, sizeof *gid);
	if (!address)
		return 0;
	if (inet_pton(AF_INET, address, gid->raw + 12) == 1) {
		gid->raw[10] = gid->raw[11] = 0xff;
		return 1;
	}
	return inet_pton(AF_INET6, address, gid->raw) == 1;
}

static int find_gid(const char *address)
{
	union ibv_gid wanted, gid;
	if (!to_gid(address, &wanted))
		return -1;
	for (int i = 0; i < 32 && !ibv_query_gid(device, 1, i, &gid); i++)
		if (!memcmp(&gid, &wanted, sizeof gid))
			return i;
	return -1;
}

static void release(void)
{
	if (ah) ibv_destroy_ah(ah);
	if (qp) ibv_destroy_qp(qp);
	if (mw) ibv_dealloc_mw(mw);
	if (mr) ibv_dereg_mr(mr);
	if (cq) ibv_destroy_cq(cq);
	if (pd) ibv_dealloc_pd(pd);
	ah = NULL, qp = NULL, mw = NULL, mr = NULL, cq = NULL, pd = NULL;
	struct ibv_async_event event;
	while (!ibv_get_async_event(device, &event))
		ibv_ack_async_event(&event);
}

static int make(void)
{
	const char *type = text("type");
	int ud = type && !strcmp(type, "ud");
	release();
	gid_index = find_gid(text("own"));
	if (gid_index < 0)
		return answer("error no GID %s", text("own") ? text("own") : "(none)"), -1;
	memset(memory, 0, ROOM);
	int access = number("access", IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ |
					      IBV_ACCESS_REMOTE_ATOMIC | IBV_ACCESS_MW_BIND);
	if (!(pd = ibv_alloc_pd(device)))
		return failed("ibv_alloc_pd", errno);
	if (!(cq = ibv_create_cq(device, 4 * DEPTH, NULL, NULL, 0)))
		return failed("ibv_create_cq", errno);
	if (!(mr = ibv_reg_mr(pd, memory, ROOM, access)))
		return failed("ibv_reg_mr", errno);
	struct ibv_qp_init_attr init = {
		.send_cq = cq, .recv_cq = cq, .cap = { DEPTH, DEPTH, 1, 1, 0 },
		.qp_type = ud ? IBV_QPT_UD : type && !strcmp(type, "uc") ? IBV_QPT_UC : IBV_QPT_RC,
	};
	if (!(qp = ibv_create_qp(pd, &init)))
		return failed("ibv_create_qp", errno);
	struct ibv_qp_attr attr = {
		.qp_state = IBV_QPS_INIT, .port_num = 1, .qkey = number("qkey", 0x11111111),
		.qp_access_flags = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ |
				   IBV_ACCESS_REMOTE_ATOMIC,
	};
	int mask = IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | (ud ? IBV_QP_QKEY : IBV_QP_ACCESS_FLAGS);
	int error = ibv_modify_qp(qp, &attr, mask);
	if (error)
		return failed("ibv_modify_qp to INIT", error);
	answer("ok qpn=%u rkey=%u addr=%lu", qp->qp_num, mr->rkey, (unsigned long)(uintptr_t)memory);
	return 0;
}

static int connect_qp(void)
{
	union ibv_gid peer;
	if (!to_gid(text("peer"), &peer))
		return answer("error no address peer="), -1;
	struct ibv_ah_attr path = {
		.is_global = 1, .port_num = 1,
		.grh = { .dgid = peer, .sgid_index = gid_index, .hop_limit = 64 },
	};
	int mtu = number("mtu", 1024), code = IBV_MTU_256;
	while (mtu > 256)
		mtu /= 2, code++;
	struct ibv_qp_attr attr = {
		.qp_state = IBV_QPS_RTR, .path_mtu = code, .dest_qp_num = number("qpn", 0), .rq_psn = number("psn", 0),
		.max_dest_rd_atomic = number("rd", 4), .min_rnr_timer = number("min_rnr", 12), .ah_attr = path,
	};
	int mask = IBV_QP_STATE;
	if (qp->qp_type != IBV_QPT_UD)
		mask |= IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN;
	if (qp->qp_type == IBV_QPT_RC)
		mask |= IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER;
	int error = ibv_modify_qp(qp, &attr, mask);
	if (error)
		return failed("ibv_modify_qp to RTR", error);
	attr = (struct ibv_qp_attr){
		.qp_state = IBV_QPS_RTS, .sq_psn = number("own_psn", 0), .timeout = number("timeout", 14),
		.retry_cnt = number("retry", 7), .rnr_retry = number("rnr", 7), .max_rd_atomic = number("rd", 4),
	};
	mask = IBV_QP_STATE | IBV_QP_SQ_PSN;
	if (qp->qp_type == IBV_QPT_RC)
		mask |= IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY | IBV_QP_MAX_QP_RD_ATOMIC;
	error = ibv_modify_qp(qp, &attr, mask);
	if (error)
		return failed("ibv_modify_qp to RTS", error);
	if (qp->qp_type == IBV_QPT_UD && !(ah = ibv_create_ah(pd, &path)))
		return failed("ibv_create_ah", errno);
	answer("ok");
	return 0;
}

static struct ibv_sge sge(void)
{
	return (struct ibv_sge){ (uintptr_t)memory + number("at", 0), number("len", 8), mr->lkey };
}

static int post_recv(void)
{
	struct ibv_sge piece = sge();
	struct ibv_recv_wr request = { .wr_id = number("id", 0), .sg_list = &piece, .num_sge = 1 }, *bad;
	int error = ibv_post_recv(qp, &request, &bad);
	if (error)
		return failed("ibv_post_recv", error);
	answer("ok");
	return 0;
}

static int post_send(void)
{
	static const struct { const char *name; enum ibv_wr_opcode code; } operations[] = {
		{ "send", IBV_WR_SEND }, { "send_imm", IBV_WR_SEND_WITH_IMM }, { "send_inv", IBV_WR_SEND_WITH_INV },
		{ "write", IBV_WR_RDMA_WRITE }, { "write_imm", IBV_WR_RDMA_WRITE_WITH_IMM },
		{ "read", IBV_WR_RDMA_READ }, { "cas", IBV_WR_ATOMIC_CMP_AND_SWP }, { "faa", IBV_WR_ATOMIC_FETCH_AND_ADD },
	};
	const char *name = text("op");
	struct ibv_sge piece = sge();
	struct ibv_send_wr request = { .wr_id = number("id", 0), .sg_list = &piece, .num_sge = 1 }, *bad;
	size_t i = 0, count = sizeof operations / sizeof *operations;
	while (i < count && (!name || strcmp(name, operations[i].name)))
		i++;
	if (i == count)
		return answer("error no operation %s", name ? name : "(none)"), -1;
	request.opcode = operations[i].code;
	request.send_flags = IBV_SEND_SIGNALED | (number("fence", 0) ? IBV_SEND_FENCE : 0) |
			     (number("solicited", 0) ? IBV_SEND_SOLICITED : 0);
	switch (request.opcode) {
	case IBV_WR_ATOMIC_CMP_AND_SWP:
	case IBV_WR_ATOMIC_FETCH_AND_ADD:
		request.wr.atomic.remote_addr = number("raddr", 0);
		request.wr.atomic.rkey = number("rkey", 0);
		request.wr.atomic.compare_add = number("compare", number("add", 0));
		request.wr.atomic.swap = number("swap", 0);
		break;
	case IBV_WR_SEND_WITH_INV:
		request.invalidate_rkey = number("rkey", 0);
		break;
	default:
		request.wr.rdma.remote_addr = number("raddr", 0);
		request.wr.rdma.rkey = number("rkey", 0);
		request.imm_data = htonl(number("imm", 0));
	}
	if (qp->qp_type == IBV_QPT_UD) {
		request.wr.ud.ah = ah;
		request.wr.ud.remote_qpn = number("qpn", 0);
		request.wr.ud.remote_qkey = number("qkey", 0x11111111);
	}
	int error = ibv_post_send(qp, &request, &bad);
	if (error)
		return failed("ibv_post_send", error);
	answer("ok");
	return 0;
}

static int bind_window(void)
{
	if (!(mw = ibv_alloc_mw(pd, IBV_MW_TYPE_2)))
		return failed("ibv_alloc_mw", errno);
	struct ibv_send_wr request = { .wr_id = number("id", 0), .opcode = IBV_WR_BIND_MW,
				       .send_flags = IBV_SEND_SIGNALED }, *bad;
	request.bind_mw.mw = mw;
	request.bind_mw.rkey = ibv_inc_rkey(mw->rkey);
	request.bind_mw.bind_info = (struct ibv_mw_bind_info){
		mr, (uintptr_t)memory + number("at", 0), number("len", 8), number("access", IBV_ACCESS_REMOTE_WRITE) };
	int error = ibv_post_send(qp, &request, &bad);
	if (error)
		return failed("binding a window", error);
	answer("ok rkey=%u", request.bind_mw.rkey);
	return 0;
}

static uint64_t milliseconds(void)
{
	struct timespec now;
	clock_gettime(CLOCK_MONOTONIC, &now);
	return now.tv_sec * 1000ull + now.tv_nsec / 1000000;
}

static int poll_one(void)
{
	uint64_t end = milliseconds() + number("ms", 0);
	struct ibv_wc wc;
	int count;
	while (!(count = ibv_poll_cq(cq, 1, &wc)) && milliseconds() < end)
		usleep(100);
	if (count < 0)
		return answer("error ibv_poll_cq"), -1;
	if (!count)
		answer("ok none=1");
	else if (wc.status != IBV_WC_SUCCESS)
		answer("ok id=%lu status=%d", (unsigned long)wc.wr_id, wc.status);
	else {
		/* The driver reports an invalidated key by the kernel's flag, 4, which is another one's here. */
		int invalidated = wc.wc_flags & (IBV_WC_WITH_INV | 4);
		answer("ok id=%lu status=0 opcode=%d bytes=%u flags=%u imm=%u inv=%u src=%u", (unsigned long)wc.wr_id,
		       wc.opcode, wc.byte_len, wc.wc_flags, wc.wc_flags & IBV_WC_WITH_IMM ? ntohl(wc.imm_data) : 0,
		       invalidated ? wc.invalidated_rkey : 0, wc.src_qp);
	}
	return 0;
}

static uint8_t pattern(uint64_t seed, uint64_t i)
{
	return (seed * 131 + i * 7 + (i >> 8) * 13 + 1) & 0xff;
}

static pid_t child = -1;

/* Runs a line in a process group of its own; what it prints goes to two files. */
static pid_t start(const char *line, const char *output, const char *errors)
{
	pid_t pid = fork();
	if (pid)
		return pid;
	setpgid(0, 0);
	int flags = O_WRONLY | O_CREAT | O_TRUNC;
	dup2(open("/dev/null", O_RDONLY), 0), dup2(open(output, flags, 0600), 1), dup2(open(errors, flags, 0600), 2);
	execl("/bin/sh", "sh", "-c", line, NULL);
	_exit(127);
}

static int code(int status)
{
	return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

static void print_file(const char *name)
{
	FILE *file = fopen(name, "r");
	for (int c; file && (c = getc(file)) != EOF;)
		printf(c < 128 && isalnum(c) ? "%c" : "%%%02x", c);
	if (file)
		fclose(file);
}

static void stop(void)
{
	if (child <= 0)
		return;
	kill(-child, SIGCONT);
	kill(-child, SIGKILL);
	waitpid(child, NULL, 0);
	child = -1;
}

static void wait_for_child(long ms)
{
	int status;
	pid_t ended;
	while (!(ended = waitpid(child, &status, WNOHANG)) && ms-- > 0)
		usleep(1000);
	if (ended <= 0) {
		answer(ended ? "error nothing was started" : "ok running=1");
		return;
	}
	child = -1;
	printf("ok code=%d text=", code(status));
	print_file("/output");
	print_file("/errors");
	answer("");
}

/* Commands about other programs. Zero if it is none. */
static int about_programs(const char *line)
{
	int status = 0;
	if (!strncmp(line, "start ", 6)) {
		stop();
		child = start(line + 6, "/output", "/errors");
		child > 0 ? answer("ok") : (void)failed("fork", errno);
	} else if (!strncmp(line, "sh ", 3)) {
		pid_t pid = start(line + 3, "/dev/null", "/dev/null");
		if (pid > 0 && waitpid(pid, &status, 0) == pid)
			answer("ok code=%d", code(status));
		else
			failed("fork", errno);
	} else if (!strncmp(line, "wait ms=", 8)) {
		wait_for_child(atol(line + 8));
	} else if (!strcmp(line, "stop")) {
		stop();
		answer("ok");
	} else {
		return 0;
	}
	return 1;
}

static int command(void)
{
	const char *name = words[0];
	if (!strcmp(name, "make"))
		return make();
	if (!qp)
		return answer("error no queue pair for %s", name), -1;
	if (!in_memory())
		return answer("error at= and len= are outside of %d bytes", ROOM), -1;
	uint8_t *place = memory + number("at", 0);
	uint64_t len = number("len", 0), seed = number("seed", 0), wrong = 0, value;
	if (!strcmp(name, "connect"))
		return connect_qp();
	if (!strcmp(name, "recv"))
		return post_recv();
	if (!strcmp(name, "post"))
		return post_send();
	if (!strcmp(name, "bind"))
		return bind_window();
	if (!strcmp(name, "poll"))
		return poll_one();
	if (!strcmp(name, "fill")) {
		for (uint64_t i = 0; i < len; i++)
			place[i] = pattern(seed, i);
		answer("ok");
	} else if (!strcmp(name, "check")) {
		for (uint64_t i = 0; i < len; i++)
			wrong += place[i] != pattern(seed, i);
		answer("ok wrong=%lu", (unsigned long)wrong);
	} else if (!strcmp(name, "put")) {
		value = number("value", 0);
		memcpy(place, &value, 8);
		answer("ok");
	} else if (!strcmp(name, "get")) {
		memcpy(&value, place, 8);
		answer("ok value=%lu", (unsigned long)value);
	} else if (!strcmp(name, "state")) {
		struct ibv_qp_attr attr;
		struct ibv_qp_init_attr init;
		int error = ibv_query_qp(qp, &attr, IBV_QP_STATE, &init);
		if (error)
			return failed("ibv_query_qp", error);
		answer("ok state=%d", attr.qp_state);
	} else if (!strcmp(name, "event")) {
		struct ibv_async_event event;
		if (ibv_get_async_event(device, &event)) {
			answer("ok none=1");
		} else {
			answer("ok event=%d", event.event_type);
			ibv_ack_async_event(&event);
		}
	} else if (!strcmp(name, "free")) {
		release();
		answer("ok");
	} else {
		answer("error no command %s", name);
	}
	return 0;
}

int main(void)
{
	static char line[1024];
	int count;
	struct ibv_device **list = ibv_get_device_list(&count);
	if (!list || !count || !(device = ibv_open_device(list[0]))) {
		answer("error no RDMA device: %s", strerror(errno));
		return 1;
	}
	fcntl(device->async_fd, F_SETFL, fcntl(device->async_fd, F_GETFL) | O_NONBLOCK);
	memory = aligned_alloc(4096, ROOM);
	if (!memory)
		return 1;
	answer("ok ready=1");
	while (fgets(line, sizeof line, stdin)) {
		line[strcspn(line, "\r\n")] = 0;
		if (about_programs(line))
			continue;
		word_count = 0;
		for (char *word = strtok(line, " "); word && word_count < MAX_WORDS; word = strtok(NULL, " "))
			words[word_count++] = word;
		if (!word_count)
			continue;
		if (!strcmp(words[0], "quit"))
			break;
		command();
	}
	stop();
	release();
	return 0;
}
