
# The gap between safe until, after which a server does not rely on its claims any more, and the
# moment at which the ensemble gives the lock to another server.  It must never be negative, and
# nothing may be committed in it.
#
# ROUNDS=n makes more rounds of each kind of fault than a short test needs.

use strict;
use warnings;

use List::Util qw(max min);
use Time::HiRes qw(usleep);

use FaultNet;
use ZklockTest;

my $rounds = $ENV{ROUNDS} // 1;
my $seed = $ENV{SEED} // 1;
srand $seed;

# The short timeout makes many rounds possible.  The tick is the longest that the timeout allows:
# the longer the tick, the later the leader hears that a session lives.
my ($timeout, $tick) = (2, 1);
my $zk = ZooKeeper->new(servers => 3, tick_time => 1000 * $tick, start => 0);
my $net = FaultNet->new;
$net->link_members($zk);
my %way = map { my $name = $_; $name => [ map { $net->link($name, $_, $zk->address($_)) } 1 .. 3 ] } 'a', 'b';
$net->run;
$zk->start;
my $follower = ($zk->followers)[0];

# Server a is connected to the follower only, b to all.
my %settings = ('zklock.session_timeout' => "${timeout}s", 'zklock.linger' => 0, 'zklock.commit_margin' => 0,
	'zklock.connection_timeout' => '1min', 'zklock.on_lost' => 'notice');
my $node_a = ZklockNode->started('a', undef, 'zklock.hosts' => $way{a}[ $follower - 1 ], %settings, 'track_commit_timestamp' => 'on');
my $node_b = ZklockNode->started('b', undef, 'zklock.hosts' => join(',', @{ $way{b} }), %settings);
$_->wait_until_connected foreach $node_a, $node_b;

# (Where only ZooKeeper's packets do not arrive, the session lives on, in doubt, because each new
# connection touches it.)

# Commit under the lock as fast as possible, until a commit is refused.
$node_a->safe_psql('postgres', q{
	CREATE TABLE work (id serial);
	CREATE PROCEDURE work_on() LANGUAGE plpgsql AS $$ BEGIN
		LOOP INSERT INTO work DEFAULT VALUES; COMMIT; END LOOP; END $$ });
my ($holder, $other) = ($node_a->backend, $node_b->backend);

sub worker_stopped { kill 'STOP', $node_a->worker_pid; return; }
sub worker_goes_on { kill 'CONT', $node_a->worker_pid; return; }

sub cut_off
{
	$net->set($_->[0], $_->[1], 'hold') foreach members_of($follower);
	return;
}

sub let_in
{
	$net->set($_->[0], $_->[1], 'open'), $net->reset(@$_) foreach members_of($follower);
	return;
}

# Each half tick, the follower tells the leader which sessions live.  So the leader never hears of
# what happens within the half tick before the cut.
sub cut_off_soon
{
	usleep(1e6 * rand $tick / 2);
	return cut_off();
}

# A round after which the server is not in doubt, or hardly so.
sub pause_for_a_while
{
	usleep(1e6 * $timeout * (0.35 + rand 0.31));
	return;
}

my %fault = (
	'the worker stands still' => [ \&worker_stopped, \&worker_goes_on ],
	'nothing from the server arrives' =>
	  [ sub { $net->set('a', $follower, 'hold') }, sub { $net->set('a', $follower, 'open') } ],
	'the follower stands still' => [ sub { $zk->pause($follower) }, sub { $zk->resume($follower) } ],
	# the follower goes on for a while to answer pings, but no writes
	'the follower is cut from the leader' => [ \&cut_off, \&let_in ],
	'the leader does not hear the follower' =>
	  [ sub { $net->set($follower, $_, 'hold') foreach grep { $_ != $follower } 1 .. 3 }, \&let_in ],

	# one after the other
	'the worker stands still, then the follower is cut off' => [
		sub { worker_stopped(), pause_for_a_while(), worker_goes_on(), cut_off_soon() }, \&let_in ],
	'nothing arrives for a while, then the follower is cut off' => [
		sub {
			$net->set(@$_, 'hold') foreach [ 'a', $follower ], [ $follower, 'a' ];
			pause_for_a_while();
			$net->set(@$_, 'open') foreach [ 'a', $follower ], [ $follower, 'a' ];
			cut_off_soon();
		}, \&let_in ],
	'the server reconnects, then the follower is cut off' =>
	  [ sub { $net->reset('a', $follower), cut_off_soon() }, \&let_in ],
	'the leader stands still, then the follower is cut off' => [
		sub { $zk->pause($zk->leader), pause_for_a_while(), $zk->resume, cut_off_soon() }, \&let_in ]);

# All connections between a member and the others.
sub members_of
{
	my ($i) = @_;
	return map { [ $i, $_ ], [ $_, $i ] } grep { $_ != $i } 1 .. 3;
}

# Ends the fault, releases everything, and returns how many claims the holder has released.
sub end_round
{
	my ($what) = @_;
	$fault{$what}[1]->();
	$zk->wait_until_follower($follower);
	$node_a->wait_until_connected;
	$other->query('SELECT zk_lock_release_all()');
	return $holder->run('SELECT zk_lock_release_all()')->{out};
}

my $again = 0;
my %gaps;
foreach my $what (sort keys %fault)
{
	foreach my $round (1 .. $rounds)
	{
		my $label = "$what, round $round";
		my $path = '/gap';
		$node_a->wait_until('SELECT safe FROM zk_status');
		$holder->query("SELECT zk_lock_acquire('$path')");
		my $epoch = $node_a->status('epoch');
		my $mine = $node_a->safe_psql('postgres', 'SELECT coalesce(max(id), 0) FROM work');
		$other->send("SELECT zk_lock_acquire('$path')");
		$node_b->wait_for_ticket($path, 'queued');
		$holder->send('CALL work_on()');

		# at any phase of heartbeats and ticks
		$zk->wait_until(sub { $holder->is_done || $node_a->safe_psql('postgres', "SELECT count(*) > 0 FROM work WHERE id > $mine") eq 't' }, 'a commit');
		usleep(rand 500_000);
		my $too_early = $holder->is_done;
		$fault{$what}[0]->();
		my $result = $holder->result;
		my $answer = $other->answer;
		my $granted = $node_b->safe_psql('postgres', "SELECT claim_since FROM zk_locks WHERE path = '$path'");
		my ($safe, $committed) = map {
			$node_a->safe_psql('postgres', "SELECT extract(epoch FROM timestamptz '$granted' - ($_))") }
		  'SELECT safe_until FROM zk_status',
		  "SELECT max(pg_xact_commit_timestamp(xmin)) FROM work WHERE id > $mine";

		# Sessions as short as these may end when the machine stands still.
		if (($too_early || $node_a->status('epoch') != $epoch) && $again < 5)
		{
			cmp_ok($committed, '>', 0, "$label: all commits were before the grant, all the same") if $committed ne '';
			note "$label: once more";
			$again++;
			end_round($what);
			redo;
		}
		is($result->{errcode}, 'ZK001', "$label: no more commits");
		like($result->{err}, qr/is in doubt/, "$label: because it is in doubt");
		is($answer, 't', "$label: the other server gets the lock");
		cmp_ok($safe, '>', 0, "$label: safe until was before that");
		cmp_ok($committed, '>', 0, "$label: and all commits");
		push @{ $gaps{$what} }, $safe;
		note sprintf '%-60s safe until %.3f s, last commit %.3f s before the grant', $what, $safe, $committed;

		is(end_round($what), '1', "$label: the lost claim is released");
	}
}

foreach my $what (sort keys %gaps)
{
	diag sprintf '%-60s gap %.0f to %.0f %% of the session timeout', $what,
	  map { 100 * $_ / $timeout } min(@{ $gaps{$what} }), max(@{ $gaps{$what} });
}

$_->quit foreach $holder, $other;
$_->stop foreach $node_a, $node_b;
done_testing();
