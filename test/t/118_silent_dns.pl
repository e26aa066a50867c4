
# DNS is silent: the servers' names cannot be resolved, and each lookup waits.  That must not cost a
# server its session, and the worker must go on with its work.

use strict;
use warnings;

use Cwd qw(abs_path);
use File::Basename qw(dirname);
use Time::HiRes qw(time);

use HoldingProxy;
use ZklockTest;

my $resolver = PostgreSQL::Test::Utils::tempdir('resolver') . '/silent_dns.so';
system_or_bail('cc', '-shared', '-fPIC', '-O', '-o', $resolver,
	abs_path(dirname(__FILE__)) . '/../silent_dns.c', '-ldl');

my $zk = ZooKeeper->new;
(my $hosts = $zk->hosts) =~ s/127\.0\.0\.1/zk.test/g;
my $node = ZklockNode->initialized('a', undef, 'zklock.hosts' => $hosts, 'zklock.session_timeout' => '8s');

sub file { return $node->data_dir . "/$_[0]"; }
sub dns_falls_silent { append_to_file(file('silent'), ''); unlink file('asked'); return; }
sub dns_is_back { unlink file('silent'); return; }
sub name_is
{
	my ($name, $address) = @_;
	unlink file($name);
	return if !defined $address;
	symlink $address, file($name) or die "could not make a symbolic link: $!";
	return;
}
sub wait_until_dns_is_asked { return $zk->wait_until(sub { -e file('asked') }, 'the resolver to be asked'); }

sub start_node
{
	local $ENV{LD_PRELOAD} = $resolver;
	$node->start;
	return;
}

# The processes that wait for the resolver: children of the worker.
sub children
{
	my $worker = $node->worker_pid;
	chomp(my @children = $worker ? `ps -o pid= --ppid $worker` : ());
	return @children;
}

# All processes of the worker, which leads a session of its own.
sub processes
{
	my ($worker) = @_;
	chomp(my @processes = `ps -o pid= --sid $worker`);
	return @processes;
}

# --- from the start ---

name_is('zk.test', '127.0.0.1');
dns_falls_silent();
start_node();
$node->safe_psql('postgres', 'CREATE EXTENSION zklock');
wait_until_dns_is_asked();
is($node->status('state'), 'none', 'DNS is silent at the start: no session');
$zk->wait_until(sub { children() == 1 }, 'a process that waits for the resolver');
my $first = $node->worker_pid;
$zk->wait_until(sub { processes($first) == 3 }, 'one more, for the name');
my $begun = time;
$node->stop('fast');
cmp_ok(time - $begun, '<', 20, 'a shutdown does not wait for the resolver');
$zk->wait_until(sub { processes($first) == 0 }, 'the processes to end', 10);
cmp_ok(time - $begun, '<', 20, 'nor does anything of it stay behind');

start_node();
wait_until_dns_is_asked();
dns_is_back();
$node->wait_until_connected;
pass('connected as soon as it answers');

# --- an outage of both ---

my $judge = $node->backend;
$judge->query(acquire('/held'));
my $token = $judge->query(token('/held'));
my $session = $node->status('session_id, epoch');

dns_falls_silent();
$zk->stop;
wait_until_dns_is_asked();
$node->wait_until(q{SELECT state = 'in doubt' FROM zk_status});
is($node->status('safe'), 'f', 'in doubt');
$zk->start;
$zk->wait_until_serving;
$node->wait_until_connected;
ok(-e file('silent'), 'ZooKeeper is back before DNS is');
is($node->status('session_id, epoch'), $session, 'the session is carried on');
is($judge->query(held('/held')), 't', 'the lock is held');
is($judge->query(token('/held')), $token, 'it is the same lock');

# --- another worker ---

my $worker = $node->worker_pid;
$judge->query("SELECT pg_terminate_backend($worker)");
$node->wait_until("SELECT worker_pid <> $worker AND state IN ('connected', 'idle') AND safe FROM zk_status");
ok(-e file('silent'), 'another worker needs no DNS');
is($node->status('session_id, epoch'), $session, 'and carries the session on');
$zk->wait_until(sub { children() <= 1 }, 'one lookup at a time');

# The hosts of the new setting have not been found yet, and the addresses of the old ones are of no
# use.
$worker = $node->worker_pid;
$node->configure('zklock.hosts' => "$hosts,$hosts");
$node->reload;
$zk->wait_until(sub { processes($worker) == 4 }, 'processes for the two new names only');
dns_is_back();
$node->wait_until_connected;
is($node->status('epoch'), (split /\|/, $session)[1], 'other names are resolved in time') or diag($session);
is($node->worker_pid, $worker, 'by the same worker');

$judge->query(q{SELECT zk_lock_release_all()});

# --- some of the names ---

# A name's new addresses replace its old ones, whatever addresses the other names have.
my ($port) = $hosts =~ /:(\d+)/;
sub restart_with
{
	$node->stop('fast');
	$node->configure('zklock.hosts' => $_[0]);
	start_node();
	return;
}
name_is("zk$_.test", "127.0.0.${_}7") foreach 1 .. 3;
restart_with("zk1.test:$port,zk2.test:$port,zk3.test:$port");
$node->wait_until(q{SELECT last_error LIKE '%127.0.0.%' FROM zk_status});
is($node->status('state'), 'none', 'no server answers at the three addresses');
name_is('zk3.test', undef);
name_is("zk$_.test", '127.0.0.1') foreach 1, 2;
$node->wait_until_connected;
pass('connected to the two that have moved, while the third has no address');

# Nor does a name whose answer never comes keep the others waiting for ever.
name_is('zk1.test', 'silent');
restart_with("zk1.test:$port,127.0.0.1:$port");
$node->wait_until_connected;
$zk->wait_until(sub { children() == 1 }, 'a process that waits for the resolver');
pass('a server that has a number is used while the name of another is looked up');
name_is('zk2.test', 'silent');
$begun = time;
restart_with("zk1.test:$port,zk2.test:$port,zk.test:$port");
$node->wait_until_connected;
cmp_ok(time - $begun, '<', 20, 'a name is used while two others are silent');

# The other names are found later, while there is a connection.  When the connection is lost, the
# worker uses them at once, though DNS is silent again.
name_is("zk$_.test", "127.0.0.$_") foreach 1, 2;
$zk->wait_until(sub { children() == 0 }, 'the lookup to end');
dns_falls_silent();
$begun = time;
my $log_end = -s $node->logfile;
$zk->stop;
$worker = $node->worker_pid;
$node->wait_for_log(qr/the addresses of the ZooKeeper servers have changed/, $log_end);
cmp_ok(time - $begun, '<', 20, 'what was found meanwhile is used when the connection is lost');
$zk->start;
$node->wait_until_connected;
is($node->worker_pid, $worker, 'by the same worker');
my $log = slurp_file($node->logfile);
unlike($log, qr/could not resolve/, 'silence is no failure');

# --- a name whose address is another one at each lookup ---

# A lookup is faster than a connect.  If each lookup replaced the client handle, none would connect.
dns_is_back();
my $proxy = HoldingProxy->new($zk->hosts);
my ($slow_port) = $proxy->address =~ /:(\d+)/;
$proxy->delay(1);
name_is('zk1.test', '127.0.0.1');
name_is('zk2.test', 'changing');
$log_end = -s $node->logfile;
restart_with("zk1.test:$slow_port,zk2.test:$slow_port");
my $client = $node->backend;
my $moves;
$zk->wait_until(
	sub {
		$moves = () = slurp_file($node->logfile, $log_end) =~ /the addresses of the ZooKeeper servers have changed/g;
		return $moves > 10 || $client->query(q{SELECT connects > 0 FROM zk_status}) eq 't';
	},
	'a connection, or too many client handles');
cmp_ok($moves, '<', 10, 'a client handle for new addresses has time to connect');

# --- another list of names, while those of before are looked up ---

name_is('zk1.test', 'silent');
unlink file('asked');
restart_with("zk1.test:$port");
wait_until_dns_is_asked();
$begun = time;
$node->configure('zklock.hosts' => $hosts);
$node->reload;
$node->wait_until_connected;
cmp_ok(time - $begun, '<', 20, 'a lookup of other names does not wait until the first one ends');

# --- a name that cannot be looked up, and credentials that ZooKeeper refuses ---

# Each attempt starts a lookup.  When the lookup ends, that must not cut short the pause that
# follows a refusal: the attempts would keep the session alive, and come as fast as lookups end.
dns_is_back();
name_is('zk1.test', undef);
append_to_file(file('credentials'), "nosuchscheme x\n");
chmod 0600, file('credentials');
$node->configure('zklock.auth_file' => 'credentials');
restart_with("127.0.0.1:$port,zk1.test:$port");
$node->wait_until(q{SELECT connects > 0 AND last_error ~ 'refused the credentials' FROM zk_status});
$begun = time;
my $connects = $node->status('connects');
$node->wait_until("SELECT connects > $connects FROM zk_status");
cmp_ok(time - $begun, '>', 2, 'the next attempt comes after twice the session timeout, 8 s');

# The postmaster has adopted the processes of lookups that were cut off.
unlike(slurp_file($node->logfile), qr/terminated by signal/, 'the end of a lookup is no crash');
done_testing();
