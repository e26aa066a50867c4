
# Nothing that zklock does can hurt ZooKeeper: it does not overrun it with connections, it
# takes up thousands of watches again without a giant packet, and it stops before sequence
# numbers do.  (006_limits.pl has the end of a session that holds as much as it may.)

use strict;
use warnings;

use IO::Select;
use IO::Socket::INET;
use List::Util qw(max);
use Time::HiRes qw(time);

use ZklockTest;

# --- connections -------------------------------------------------------------------------

# Accept connections for so many seconds, or until there have been so many pauses, and handle them
# as told.  Returns the times.
my $accepted;						# until when
sub visits
{
	my ($listeners, $seconds, $do, $pauses) = @_;
	my $end = time + $seconds;
	my $patience = $end + $PostgreSQL::Test::Utils::timeout_default;
	my (@times, @kept);
	while ((my $left = $end - time) > 0 || ((!@times || pauses(@times) < $pauses) && time < $patience))
	{
		foreach my $listener (IO::Select->new(@$listeners)->can_read(max($left, 0.1)))
		{
			my $visitor = $listener->accept or next;
			push @times, time;
			push @kept, $do->($visitor);
		}
	}
	$accepted = time;
	return @times;
}

sub pauses
{
	my (@times) = @_;
	my @pauses = sort { $a <=> $b } grep { $_ > 0.1 } map { $times[$_] - $times[ $_ - 1 ] } 1 .. $#times;
	return @pauses;
}

# Accept the session, as ZooKeeper does.
sub welcome
{
	my ($visitor) = @_;
	sysread $visitor, my $request, 100;
	syswrite $visitor, pack 'N N N Q> N a16 C', 37, 0, 10000, 4711, 16, 'x' x 16, 0;
	return ();
}

my @listeners = map { IO::Socket::INET->new(Listen => 50, LocalAddr => '127.0.0.1') or die $! } 1 .. 3;
my $node = ZklockNode->initialized('n', undef,
	'zklock.hosts' => join(',', map { '127.0.0.1:' . $_->sockport } @listeners),
	'zklock.session_timeout' => '10s',
	'zklock.connection_timeout' => '1s',
	'max_locks_per_transaction' => 256,
	'zklock.max_locks_per_backend' => 3000,
	'log_min_messages' => 'debug1');
$node->start;
$node->safe_psql('postgres', 'CREATE EXTENSION zklock');

# What a hundred servers do to three ZooKeeper servers that refuse them.  By then the pauses have
# grown to a quarter of a second at least, each after a round of three.  A slow machine may count as
# many attempts in that time, but not more.
my $seconds = 2;
sub is_bounded
{
	my ($n, $elapsed, $cpu, $what) = @_;
	local $Test::Builder::Level = $Test::Builder::Level + 1;
	note sprintf '%s: %.1f connections a second, %.0f %% of a CPU', $what, $n / $elapsed, 100 * $cpu / $elapsed;
	cmp_ok($n, '>', 0, "$what: it goes on trying");
	cmp_ok($n, '<=', 3 * (1 + $elapsed / 0.25), "$what: but not all the time");
	cmp_ok($cpu / $elapsed, '<', 0.1, "$what: nor does it turn in circles");
	return;
}

foreach my $case (
	[ 'hung up on' => sub { () } ],
	[ 'welcomed and hung up on' => \&welcome ])
{
	my ($what, $do) = @$case;
	visits(\@listeners, 1, $do, 0);		# until the pauses have grown
	my ($begin, $cpu) = ($accepted, $node->worker_cpu);
	my @times = visits(\@listeners, $seconds, $do, 8);
	is_bounded(scalar(@times), $accepted - $begin, $node->worker_cpu - $cpu, $what);

	my @pauses = pauses(@times);
	cmp_ok($pauses[-1] - $pauses[0], '>', 0.03, "$what: there are pauses of different length");
}

# At first, a third of the session timeout is for all silent servers together, so that the session
# outlives them; then the limit grows.  The next worker begins anew.
my $is_silent = sub { $_[0] };
kill 'TERM', $node->worker_pid;
visits(\@listeners, 1, $is_silent, 0);
my ($silent_since, $used) = ($accepted, $node->worker_cpu);
my @silent = visits(\@listeners, 12, $is_silent, 0);
is_bounded(scalar(@silent), $accepted - $silent_since, $node->worker_cpu - $used, 'not answered');
cmp_ok(scalar(@silent), '>', 5, 'not answered: it soon tries the next server');
cmp_ok($silent[-1] - $silent[-2], '>', 1.9, 'not answered: later it waits longer');

close $_ foreach @listeners;
my ($begin, $at, $cpu) = (time, -s $node->logfile, $node->worker_cpu);
$node->safe_psql('postgres', "SELECT pg_sleep($seconds)");
my $refused = () = slurp_file($node->logfile, $at) =~ /ZooKeeper client: .*server refused to accept/g;
is_bounded($refused, time - $begin, $node->worker_cpu - $cpu, 'refused');

# --- watches -----------------------------------------------------------------------------

# Watches on more than a megabyte of paths, which is more than ZooKeeper takes in one packet.
my $zk = ZooKeeper->new;
$node->configure('zklock.hosts' => $zk->hosts, 'zklock.session_timeout' => '30s',
	'zklock.connection_timeout' => '2min', 'zklock.linger' => 0, 'log_min_messages' => 'warning');
$node->restart;
$node->wait_until_connected;
my $many = 2000;
my $path = q{rpad('/many/' || i || '/', 250, 'x')};
my $holder = $node->backend;
is($holder->query("SELECT count(*) FROM generate_series(1, $many) AS i WHERE zk_lock_acquire($path)"), $many, "$many locks are held");
my @paths = split /\n/, $node->safe_psql('postgres', "SELECT $path FROM generate_series(1, $many) AS i");
$zk->create("/zklock$_/_c_1b4e28ba-2fa1-41d2-883f-0016d3cca427-lock-", ephemeral => 1, sequence => 1, client => 'crowd') foreach @paths;
$node->wait_until("SELECT count(*) = $many FROM zk_locks WHERE contended");

# One watch on each directory, one on each znode, and two about the server: its name and its database.
sub watches { my ($n) = $zk->cmd('mntr') =~ /zk_watch_count\s+(\d+)/; return $n // 0; }
$zk->wait_until(sub { watches() == 2 * $many + 2 }, 'watches on all znodes and directories');
my $before = $node->status('session_id, connects');
$zk->restart;
$node->wait_until_connected;
$zk->wait_until(sub { watches() == 2 * $many + 2 }, 'watches on all znodes and directories');
is($node->status('session_id, connects - 1'), $before, 'one new connection, in the same session');
is($node->safe_psql('postgres', "SELECT count(*) FROM zk_locks WHERE claim = 'held'"), $many, 'all are held');
is($holder->query('SELECT zk_lock_release_all()'), $many, 'all are released');
$zk->close('crowd');
$node->wait_until('SELECT count(*) = 0 FROM zk_locks');
$zk->wait_until(sub { watches() == 2 }, 'only those about the server');
pass('no other watch is left');

# --- sequence numbers ----------------------------------------------------------------------

sub set_counter
{
	my ($path, $counter) = @_;
	$zk->stop;
	$zk->edit(1, [ $path, 'counter', $counter ]);
	$zk->start;
	$node->wait_until_connected;
	return;
}

sub names { return join ' ', sort map { /lock-(.*)/ } @{ $zk->children('/zklock/end') }; }

my $other = ZklockNode->started('o', $zk);
my $waiter = $other->backend;
$zk->create('/zklock/end');
set_counter('/zklock/end', 1999999998);
is($holder->query(acquire('/end')), 't', 'the last but one sequence number');
$waiter->send(acquire('/end'));
$zk->wait_for_children('/zklock/end', 2);
is(names(), '1999999998 1999999999', 'and the last one');
$holder->query(release('/end'));
is($waiter->answer, 't', 'are handed on');

# From here on every acquire is refused, up to the end, where ZooKeeper repeats a number.
foreach my $counter (2000000000, 2147483647)
{
	set_counter('/zklock/end', $counter) if $counter > 2000000000;
	foreach my $n (1, 2)
	{
		my $result = $holder->run(acquire('/end'));
		is($result->{errcode}, '53400', "counter at $counter: refused");
		like($result->{err}, qr/DETAIL:.*sequence numbers.*used up/s, "counter at $counter: and why");
	}
	$zk->wait_for_children('/zklock/end', 1);
	is(names(), '1999999999', "counter at $counter: the holder still holds it");
	$other->wait_until_connected;
	is($waiter->query(held('/end')), 't', "counter at $counter: for certain");
}
is($holder->query(acquire('/other')), 't', 'other locks can be had');
$waiter->query(release('/end'));
$zk->wait_for_children('/zklock/end', 0);
$zk->delete('/zklock/end');
is($holder->query(acquire('/end')), 't', 'and this one when its directory is new');

$_->quit foreach $holder, $waiter;
$_->stop foreach $node, $other;
done_testing();
