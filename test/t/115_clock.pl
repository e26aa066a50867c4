
# An administrator sets the wall clock of a server.  zklock does not go by that clock.

use strict;
use warnings;

use Cwd qw(abs_path);
use File::Basename qw(dirname);
use Time::HiRes qw(time);

use ZklockTest;

my $clock = PostgreSQL::Test::Utils::tempdir('clock') . '/set_clock.so';
system_or_bail('cc', '-shared', '-fPIC', '-O', '-o', $clock,
	abs_path(dirname(__FILE__)) . '/../set_clock.c', '-ldl');

my $zk = ZooKeeper->new;
my %settings = ('zklock.session_timeout' => '8s', 'zklock.linger' => 0);
my $node_b = ZklockNode->started('b', $zk, %settings);
my $node_a = ZklockNode->initialized('a', $zk, %settings);
{
	local $ENV{LD_PRELOAD} = $clock;
	$node_a->start;
}
$node_a->safe_psql('postgres', 'CREATE EXTENSION zklock; CREATE TABLE t (v text)');
$node_a->wait_until_connected;
my ($a1, $a2, $a3, $b1) = map { $_->backend } ($node_a) x 3, $node_b;

# Returns by how much the server finds that its clock has changed.
sub set_clock
{
	my ($seconds) = @_;
	my $file = $node_a->data_dir . '/clock';
	unlink $file;
	append_to_file($file, $seconds);
	return abs($a1->query('SELECT extract(epoch FROM clock_timestamp())') - time - $seconds) < 60;
}

foreach my $seconds (3600, -3600, 0)
{
	my $what = "set by $seconds s";
	my $epoch = $node_a->status('epoch');
	$a1->query(q{SELECT zk_lock_acquire('/held'), zk_lock_acquire('/lease', lease_time => '1h')});
	my $token = $a1->query(token('/held'));
	$b1->query(acquire('/theirs'));
	$a2->send(acquire('/theirs', '2s'));
	$node_a->wait_for_waiter('/theirs', 1);

	# The alarm for this one's deadlock_timeout finds all other timers of PostgreSQL due, too.
	$a3->send(acquire('/held', '5s')) if $seconds > 0;
	$node_a->wait_for_waiter('/held', 1) if $seconds > 0;
	$a1->query('BEGIN');
	$a1->query("INSERT INTO t VALUES ('$seconds')");

	ok(set_clock($seconds), "$what: the server sees it");
	is($a1->query(q{SELECT zk_lock_is_held('/held'), zk_lock_is_held('/lease')}), 't|t', "$what: locks are held");
	is($a1->query(q{SELECT zk_lock_remaining('/lease') BETWEEN '58 min' AND '1h'}), 't', "$what: the lease time is what it was");
	is($a1->query('SELECT safe_until BETWEEN clock_timestamp() AND clock_timestamp() + session_timeout FROM zk_status'), 't', "$what: safe until is shown on the new clock");
	is($a1->errcode('COMMIT'), '', "$what: commit");
	my $result = $a2->result;
	is($result->{out}, 'f', "$what: a wait ends");
	cmp_ok($result->{seconds}, '>', 1.9, "$what: not before its time");
	cmp_ok($result->{seconds}, '<', 60, "$what: nor long after");

	$result = $a3->result if $seconds > 0;
	cmp_ok($result->{seconds}, '>', 4.9, "$what: nor does one within the server") if $seconds > 0;

	# for longer than the session would live without heartbeats
	my $safe = $node_a->status('safe_until');
	$node_a->wait_until("SELECT safe_until > '$safe'::timestamptz + 1.2 * session_timeout FROM zk_status");
	is($node_a->status('state'), 'connected', "$what: the session goes on");
	is($node_a->status('epoch'), $epoch, "$what: the same");
	is($a1->query(token('/held')), $token, "$what: with its locks");
	$_->query('SELECT zk_lock_release_all()') foreach $a1, $b1;
	is($a2->query(acquire('/held', '1min')), 't', "$what: the next one");
	cmp_ok($a2->query(token('/held')), '>', $token, "$what: has a greater token");
	$a2->query('SELECT zk_lock_release_all()');
}

# Before 1970, the record of a wait has a time that no server can parse.
{
	my $worker = $node_a->worker_pid;
	my $at = -s $node_a->logfile;
	$b1->query(acquire('/theirs'));
	$a1->query(acquire('/held'));
	ok(set_clock(-1_900_000_000), 'before 1970: the server sees it');
	$a1->send(acquire('/theirs'));
	$node_a->wait_for_log(qr/could not read the waits of this server/, $at);
	$b1->query(q{SELECT zk_lock_release_all()});
	is($a1->result->{out}, 't', 'before 1970: a wait ends');
	is($node_a->worker_pid, $worker, 'before 1970: the worker goes on without a search for deadlocks');
	set_clock(0);
}

$_->quit foreach $a1, $a2, $a3, $b1;
$_->stop foreach $node_a, $node_b;
done_testing();
