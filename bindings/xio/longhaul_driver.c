/* libglobus_xio_longhaul_driver.so: connections of Globus XIO through Longhaul's gateways.
 *
 * A transform above `tcp`, as in `-dcstack tcp,longhaul,gsi`: what it opens is a TCP connection to the first
 * gateway, on which header and answer go first; from then on it steps aside. So all options of
 * `tcp` hold for the segment to that gateway, and security drivers above see the far end. What is
 * accepted passes through untouched.
 *
 * The gateways are those of LONGHAUL_VIA. The driver option `via` names others, joined by `+`, as in
 * `tcp,longhaul:via=near+far`: only those that are words of LONGHAUL_XIO_ALLOW, since a server
 * takes options from its users. LONGHAUL_VIA_TOKEN_FILE names the file with the token. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>

#include "globus_xio_driver.h"
#include "globus_xio_tcp_driver.h"
#include "longhaul_relay.h"

GlobusXIODeclareModule(longhaul);

enum { SET_VIA = 1 };

#define ANSWER_MAX 4096

/* A connection while it is opened. */
typedef struct {
	longhaul_relay_dial *dial;
	const longhaul_relay_route *route;
	char target[300];
	/* The gateway's address, in words and for the kernel. */
	char gateway[80];
	struct sockaddr_storage peer;
	socklen_t peer_len;
	globus_bool_t is_second;
	globus_xio_iovec_t iovec;
	char answer[ANSWER_MAX];
	globus_xio_operation_t op;
	/* Fires when the answer is given up, and shuts the socket down, which ends what is under way. */
	globus_callback_handle_t timer;
	globus_xio_system_socket_t socket;
	globus_bool_t late;
	/* The outcome. */
	globus_object_t *error;
} opening_t;

/* Routes that were used, and are kept: with them what is known of a gateway's clock. */
typedef struct known {
	struct known *next;
	char *via;
	longhaul_relay_route *route;
} known_t;

static globus_mutex_t lock;
static known_t *known;

static int activate(void);
static int deactivate(void);

static globus_version_t version = {1, 0, 0, 0};

GlobusXIODefineModule(longhaul) = {
	.module_name = "globus_xio_longhaul",
	.activation_func = activate,
	.deactivation_func = deactivate,
	.version = &version,
};

static globus_result_t failed(int number, const char *words)
{
	return globus_error_put(globus_error_wrap_errno_error(GlobusXIOMyModule(longhaul), number,
		GLOBUS_XIO_ERROR_SYSTEM_ERROR, __FILE__, __func__, __LINE__, "longhaul: %s", words));
}

/* A word of the list, with spaces between. */
static int is_listed(const char *list, const char *word)
{
	size_t len = strlen(word);
	while (list && *list) {
		size_t this = strcspn(list, " ");
		if (this == len && !strncmp(list, word, len))
			return 1;
		list += this + strspn(list + this, " ");
	}
	return 0;
}

/* The route through the gateways of an option, or those of the environment. */
static globus_result_t find_route(const char *option, const longhaul_relay_route **route)
{
	const char *fixed = getenv("LONGHAUL_VIA"), *file = getenv("LONGHAUL_VIA_TOKEN_FILE");
	char via[1024], error[512];
	globus_result_t result = GLOBUS_SUCCESS;
	known_t *entry;

	if (option && !is_listed(getenv("LONGHAUL_XIO_ALLOW"), option))
		return failed(EACCES, "LONGHAUL_XIO_ALLOW does not list the gateways of this option");
	if (!option && !fixed)
		return failed(EINVAL, "through which gateways? LONGHAUL_VIA names none");
	if (!file)
		return failed(EINVAL, "LONGHAUL_VIA_TOKEN_FILE names no token file");
	if ((size_t)snprintf(via, sizeof via, "%s", option ? option : fixed) >= sizeof via)
		return failed(EINVAL, "the names of the gateways are too long");
	for (char *at = via; option && *at; at++)
		if (*at == '+')
			*at = ',';
	globus_mutex_lock(&lock);
	for (entry = known; entry && strcmp(entry->via, via); entry = entry->next)
		;
	if (!entry && (entry = calloc(1, sizeof *entry))) {
		entry->via = strdup(via);
		entry->route = longhaul_relay_route_new(via, file, error, sizeof error);
		if (entry->via && entry->route) {
			entry->next = known;
			known = entry;
		} else {
			result = failed(EINVAL, entry->route ? "no memory" : error);
			longhaul_relay_route_free(entry->route);
			free(entry->via);
			free(entry);
			entry = NULL;
		}
	}
	if (entry)
		*route = entry->route;
	else if (result == GLOBUS_SUCCESS)
		result = failed(ENOMEM, "no memory");
	globus_mutex_unlock(&lock);
	return result;
}

static void opening_free(opening_t *opening)
{
	longhaul_relay_dial_free(opening->dial);
	free(opening);
}

static void closed(globus_xio_operation_t op, globus_result_t result, void *arg)
{
	opening_t *opening = arg;
	globus_object_t *error = opening->error;
	(void)result;
	opening_free(opening);
	globus_xio_driver_finished_open(NULL, op, globus_error_put(error));
}

static void give_up(globus_xio_operation_t op, opening_t *opening, globus_result_t result)
{
	opening->error = globus_error_get(result);
	if (globus_xio_driver_pass_close(op, closed, opening) != GLOBUS_SUCCESS)
		closed(op, GLOBUS_SUCCESS, opening);
}

/* The timer does not run any more, and will not. */
static void over(void *arg)
{
	opening_t *opening = arg;
	globus_xio_operation_t op = opening->op;
	globus_result_t result = GLOBUS_SUCCESS;

	if (opening->late) {
		/* Whatever came last: the socket was shut down. */
		globus_object_free(opening->error);
		if (opening->dial && longhaul_relay_dial_receive(opening->dial, opening->answer, 0) ==
					     LONGHAUL_RELAY_FAILED)
			result = failed(longhaul_relay_dial_errno(opening->dial),
					longhaul_relay_dial_message(opening->dial));
		else
			result = failed(ETIMEDOUT, "the gateway gave no answer in time");
	} else if (opening->error) {
		result = globus_error_put(opening->error);
	}
	if (result != GLOBUS_SUCCESS) {
		give_up(op, opening, result);
		return;
	}
	opening_free(opening);
	globus_xio_driver_finished_open(NULL, op, GLOBUS_SUCCESS);
}

static void settle(opening_t *opening, globus_result_t result)
{
	opening->error = result == GLOBUS_SUCCESS ? NULL : globus_error_get(result);
	globus_callback_unregister(opening->timer, over, opening, NULL);
}

static void expire(void *arg)
{
	opening_t *opening = arg;
	opening->late = GLOBUS_TRUE;
	shutdown(opening->socket, SHUT_RDWR);
}

static void answered(globus_xio_operation_t op, globus_result_t result, globus_size_t len, void *arg);

/* Asks for exactly what is missing of the answer, so that nothing behind it is read. */
static void read_on(globus_xio_operation_t op, opening_t *opening)
{
	size_t wanted = longhaul_relay_dial_wanted(opening->dial);
	globus_result_t result;

	opening->iovec.iov_base = opening->answer;
	opening->iovec.iov_len = wanted < ANSWER_MAX ? wanted : ANSWER_MAX;
	result = globus_xio_driver_pass_read(op, &opening->iovec, 1, opening->iovec.iov_len, answered,
					     opening);
	if (result != GLOBUS_SUCCESS)
		settle(opening, result);
}

static globus_result_t send_header(opening_t *opening);

/* Connects the same socket once more, which so keeps its options. What is passed on next waits until it
 * is connected. */
static globus_result_t dial_again(opening_t *opening)
{
	struct sockaddr nobody = {.sa_family = AF_UNSPEC};
	char error[512];

	if (connect(opening->socket, &nobody, sizeof nobody) ||
	    (connect(opening->socket, (struct sockaddr *)&opening->peer, opening->peer_len) &&
	     errno != EINPROGRESS))
		return failed(errno, "the gateway cannot be connected to once more");
	if (opening->late)
		return failed(ETIMEDOUT, "the gateway gave no answer in time");
	longhaul_relay_dial_free(opening->dial);
	opening->dial = longhaul_relay_dial_new(opening->route, opening->target, opening->gateway, error,
						sizeof error);
	return opening->dial ? send_header(opening) : failed(EINVAL, error);
}

static void answered(globus_xio_operation_t op, globus_result_t result, globus_size_t len, void *arg)
{
	opening_t *opening = arg;

	if (result != GLOBUS_SUCCESS) {
		settle(opening, result);
		return;
	}
	switch (longhaul_relay_dial_receive(opening->dial, opening->answer, len)) {
	case LONGHAUL_RELAY_CONNECTED:
		settle(opening, GLOBUS_SUCCESS);
		return;
	case LONGHAUL_RELAY_WANT_READ:
		read_on(op, opening);
		return;
	case LONGHAUL_RELAY_AGAIN:
		if (opening->is_second)
			result = failed(ECONNABORTED, "the gateway says another time than a moment ago");
		else
			result = dial_again(opening);
		opening->is_second = GLOBUS_TRUE;
		if (result != GLOBUS_SUCCESS)
			settle(opening, result);
		return;
	default:
		settle(opening, failed(longhaul_relay_dial_errno(opening->dial),
				       longhaul_relay_dial_message(opening->dial)));
	}
}

static void sent(globus_xio_operation_t op, globus_result_t result, globus_size_t len, void *arg)
{
	(void)len;
	if (result != GLOBUS_SUCCESS)
		settle(arg, result);
	else
		read_on(op, arg);
}

static globus_result_t send_header(opening_t *opening)
{
	size_t len;

	opening->iovec.iov_base = (void *)longhaul_relay_dial_header(opening->dial, &len);
	opening->iovec.iov_len = len;
	return globus_xio_driver_pass_write(opening->op, &opening->iovec, 1, len, sent, opening);
}

/* Splits "HOST:PORT" in place; brackets of IPv6 go. */
static char *split(char *place)
{
	char *port = strrchr(place, ':');
	*port = 0;
	if (*place == '[' && port[-1] == ']') {
		port[-1] = 0;
		memmove(place, place + 1, strlen(place));
	}
	return port + 1;
}

static void connected(globus_xio_operation_t op, globus_result_t result, void *arg)
{
	opening_t *opening = arg;
	globus_xio_driver_handle_t handle;
	char *gateway = NULL, error[512];
	globus_reltime_t left;

	if (result != GLOBUS_SUCCESS) {
		opening_free(opening);
		globus_xio_driver_finished_open(NULL, op, result);
		return;
	}
	handle = globus_xio_operation_get_driver_handle(op);
	result = globus_xio_driver_handle_cntl(handle, GLOBUS_XIO_QUERY, GLOBUS_XIO_TCP_GET_HANDLE,
					       &opening->socket);
	if (result == GLOBUS_SUCCESS)
		result = globus_xio_driver_handle_cntl(handle, GLOBUS_XIO_QUERY,
						       GLOBUS_XIO_GET_REMOTE_NUMERIC_CONTACT, &gateway);
	if (result != GLOBUS_SUCCESS) {
		give_up(op, opening, result);
		return;
	}
	opening->peer_len = sizeof opening->peer;
	getpeername(opening->socket, (struct sockaddr *)&opening->peer, &opening->peer_len);
	snprintf(opening->gateway, sizeof opening->gateway, "%s", gateway);
	free(gateway);
	opening->dial = longhaul_relay_dial_new(opening->route, opening->target, opening->gateway, error,
						sizeof error);
	if (!opening->dial) {
		give_up(op, opening, failed(EINVAL, error));
		return;
	}
	opening->op = op;
	GlobusTimeReltimeSet(left, longhaul_relay_dial_left(opening->dial) / 1000 + 1, 0);
	result = globus_callback_register_oneshot(&opening->timer, &left, expire, opening);
	if (result != GLOBUS_SUCCESS) {
		give_up(op, opening, result);
		return;
	}
	result = send_header(opening);
	if (result != GLOBUS_SUCCESS)
		settle(opening, result);
}

static void passed(globus_xio_operation_t op, globus_result_t result, void *arg)
{
	(void)arg;
	globus_xio_driver_finished_open(NULL, op, result);
}

static globus_result_t open_it(const globus_xio_contact_t *contact, void *link, void *attr,
			       globus_xio_operation_t op)
{
	globus_xio_contact_t gateway = {0};
	opening_t *opening;
	globus_result_t result;
	char place[300];
	int len;

	/* Accepted, or of a descriptor that somebody has connected. */
	if (link || !contact->host || !contact->port)
		return globus_xio_driver_pass_open(op, contact, passed, NULL);
	opening = calloc(1, sizeof *opening);
	if (!opening)
		return failed(ENOMEM, "no memory");
	result = find_route(attr ? *(char **)attr : NULL, &opening->route);
	len = snprintf(opening->target, sizeof opening->target,
		       strchr(contact->host, ':') && *contact->host != '[' ? "[%s]:%s" : "%s:%s",
		       contact->host, contact->port);
	if (result == GLOBUS_SUCCESS && len >= (int)sizeof opening->target)
		result = failed(EINVAL, "the target's name is too long");
	if (result == GLOBUS_SUCCESS) {
		snprintf(place, sizeof place, "%s", longhaul_relay_route_gateway(opening->route));
		gateway.port = split(place);
		gateway.host = place;
		result = globus_xio_driver_pass_open(op, &gateway, connected, opening);
	}
	if (result != GLOBUS_SUCCESS)
		opening_free(opening);
	return result;
}

/* An attribute is the option's text, or nothing. */
static globus_result_t attr_init(void **attr)
{
	*attr = calloc(1, sizeof(char *));
	return *attr ? GLOBUS_SUCCESS : failed(ENOMEM, "no memory");
}

static globus_result_t attr_destroy(void *attr)
{
	free(*(char **)attr);
	free(attr);
	return GLOBUS_SUCCESS;
}

static globus_result_t attr_set(void *attr, const char *via)
{
	char *copy = strdup(via);
	if (!copy)
		return failed(ENOMEM, "no memory");
	free(*(char **)attr);
	*(char **)attr = copy;
	return GLOBUS_SUCCESS;
}

static globus_result_t attr_copy(void **copy, void *attr)
{
	const char *via = *(char **)attr;
	globus_result_t result = attr_init(copy);
	return result == GLOBUS_SUCCESS && via ? attr_set(*copy, via) : result;
}

static globus_result_t attr_cntl(void *attr, int command, va_list arguments)
{
	if (command == SET_VIA)
		return attr_set(attr, va_arg(arguments, const char *));
	return failed(EINVAL, "no such command");
}

static globus_xio_string_cntl_table_t options[] = {
	{"via", SET_VIA, globus_xio_string_cntl_string},
	{NULL, 0, NULL},
};

static globus_result_t push(globus_xio_driver_t driver, globus_xio_stack_t stack)
{
	return globus_xio_stack_push_driver(stack, driver);
}

static globus_result_t init(globus_xio_driver_t *driver)
{
	globus_result_t result = globus_xio_driver_init(driver, "longhaul", NULL);
	if (result != GLOBUS_SUCCESS)
		return result;
	globus_xio_driver_set_transform(*driver, open_it, NULL, NULL, NULL, NULL, push);
	globus_xio_driver_set_attr(*driver, attr_init, attr_copy, attr_cntl, attr_destroy);
	globus_xio_driver_string_cntl_set_table(*driver, options);
	return GLOBUS_SUCCESS;
}

static void destroy(globus_xio_driver_t driver)
{
	globus_xio_driver_destroy(driver);
}

GlobusXIODefineDriver(longhaul, init, destroy);

static int activate(void)
{
	int code = globus_module_activate(GLOBUS_XIO_MODULE);
	if (code != GLOBUS_SUCCESS)
		return code;
	globus_mutex_init(&lock, NULL);
	GlobusXIORegisterDriver(longhaul);
	return GLOBUS_SUCCESS;
}

static int deactivate(void)
{
	GlobusXIOUnRegisterDriver(longhaul);
	while (known) {
		known_t *next = known->next;
		longhaul_relay_route_free(known->route);
		free(known->via);
		free(known);
		known = next;
	}
	globus_mutex_destroy(&lock);
	return globus_module_deactivate(GLOBUS_XIO_MODULE);
}
