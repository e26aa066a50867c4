
# An ensemble that is far from the server: how many round trips each kind of request takes, how far ahead
# "safe until" stays, and what happens on a line of 20 Mbit/s while a long list arrives.
#
# FAR="1 10 50" measures with these round trips, in ms, for the table in doc/performance.md, which is then
# in test/out/far.  With APART=follower or APART=leader, the three ZooKeepers are so far from one another, and
# the servers are beside a follower or the leader.

use strict;
use warnings;

use List::Util qw(min);
use Time::HiRes qw(time);

use Contender;
use FaultNet;
use ZklockTest;

my $MBIT = 20;
my @round_trips = split ' ', $ENV{FAR} // '100';
my $rounds = $ENV{FAR} ? 21 : 5;

my $apart = $ENV{APART};
my $zk = ZooKeeper->new(servers => 3, tick_time => 2000, start => 0);
my $members = FaultNet->new;
if ($apart)
{
	$members->link_members($zk);
	$members->run;
}
$zk->start;
my $net = FaultNet->new;
my ($beside) = $apart ? grep { ($_ == $zk->leader) eq ($apart eq 'leader') } 1 .. 3 : 1;
my %hosts = map { $_ => $net->link($_, 'zk', $zk->address($beside)) } 'a', 'b';
$net->run;

sub set_far
{
	my ($ms) = @_;
	foreach my $i ($apart ? (1 .. 3) : ())
	{
		$members->set_far($i, $_, $ms, $MBIT) foreach $i + 1 .. 3;
	}
	$net->set_far($_, 'zk', $apart ? 0 : $ms, $MBIT) foreach 'a', 'b';
	return;
}

my %settings = ('zklock.session_timeout' => '10s', 'zklock.connection_timeout' => '1min', 'zklock.linger' => '1min');
my ($node_a, $node_b) = map { ZklockNode->started($_, undef, 'zklock.hosts' => $hosts{$_}, %settings) } 'a', 'b';
my ($far, $other, $watcher) = map { $_->backend } $node_a, $node_b, $node_a;

# Milliseconds; the clock is the same on both servers.
my $clock = 'extract(epoch FROM clock_timestamp()) * 1000';
my $took = q{
	CREATE FUNCTION took(path text, timeout interval, OUT ms float, OUT got boolean) LANGUAGE plpgsql AS $$
	DECLARE since timestamptz := clock_timestamp();
	BEGIN
		got := zk_lock_acquire(path, timeout);
		ms := extract(epoch FROM clock_timestamp() - since) * 1000;
	END $$};
$_->query($took) foreach $far, $other;

my $contender = Contender->zklock($other, $node_b, acquire => sub { "SELECT zk_lock_acquire('$_[0]'), $clock" });
my $fresh = 0;
sub took { my ($path, $timeout, $got) = @_; my ($ms, $is) = split /\|/, $far->query("SELECT * FROM took('$path', '$timeout')"); is($is, $got, "$path: $got"); return $ms; }
sub median { my @sorted = sort { $a <=> $b } @_; return $sorted[ @sorted / 2 ]; }

# Each returns how long one took, in ms.
my %measure = (
	lingers => sub {
		my $ms = took('/far/lingers', '1min', 't');
		$far->query(q{SELECT zk_lock_release('/far/lingers')});
		return $ms;
	},
	fresh => sub { return took('/far/fresh' . ++$fresh, '1min', 't'); },
	handover => sub {
		my $path = '/far/handover' . ++$fresh;
		took($path, '1min', 't');
		$contender->queue($zk, $path);
		$node_a->wait_until_contended($path);
		my $released = $far->query("SELECT $clock FROM zk_lock_release('$path')");
		my ($got_it, $at) = split /\|/, $other->result->{out};
		return $at - $released;
	},
	failed => sub {
		$other->query(q{SELECT zk_lock_acquire('/far/held') WHERE NOT zk_lock_is_held('/far/held')});
		$node_a->wait_until(q{SELECT count(*) = 0 FROM zk_locks WHERE path = '/far/held'});		# of the round before
		return took('/far/held', '0', 'f');
	});

# How far ahead "safe until" is at the worst moment of some seconds, in seconds.
sub send_least_ahead
{
	my ($seconds) = @_;
	return $watcher->send(qq{
		CREATE TEMP TABLE IF NOT EXISTS ahead (s float);
		TRUNCATE ahead;
		DO \$\$
		DECLARE last timestamptz := clock_timestamp() + '$seconds s';
		BEGIN
			WHILE clock_timestamp() < last LOOP
				INSERT INTO ahead SELECT extract(epoch FROM safe_until - clock_timestamp()) FROM zk_status;
				PERFORM pg_sleep(0.02);
			END LOOP;
		END \$\$;
		SELECT round(min(s)::numeric, 2) FROM ahead});
}

sub reconnect
{
	my $connects = $node_a->status('connects');
	my $begin = time;
	$net->reset('a', 'zk');
	$node_a->wait_until("SELECT connects > $connects AND safe FROM zk_status");
	return time - $begin;
}

sub show { append_to_file("$ENV{LAB}/out/far", "@_\n") if $ENV{FAR}; return; }

$far->query(q{SELECT zk_lock_acquire('/far/kept')});
$zk->create_many('/zklock/far/crowd', 40_000, 'a-lock-below-with-a-name-that-is-some-45-bytes-long-');
foreach my $ms (@round_trips)
{
	set_far($ms);
	my %ms;
	$measure{$_}->() foreach 'lingers', 'lingers', 'fresh';		# until it lingers
	foreach my $what (sort keys %measure)
	{
		push @{ $ms{$what} }, $measure{$what}->() foreach 1 .. $rounds;
	}
	send_least_ahead(6);
	my $ahead = $watcher->answer;
	show(sprintf '%s ms: ahead %.2f s, reconnect %.2f s, ms: %s', $ms, $ahead, reconnect(),
		join ', ', map { sprintf "$_ %.1f (%.1f)", min(@{ $ms{$_} }), median(@{ $ms{$_} }) } sort keys %ms);
	next if $ENV{FAR};

	# A busy machine adds some, so the best of the rounds counts the round trips.
	my %trips = map { $_ => int(min(@{ $ms{$_} }) / $ms) } keys %ms;
	is_deeply(\%trips, { lingers => 0, fresh => 1, handover => 1, failed => 2 }, "$ms ms: round trips");
}

# 40,000 names take a second on this line, and the replies to signs of life come after them.
set_far($round_trips[-1]);
my $connects = $node_a->status('connects');
send_least_ahead(6);
cmp_ok(took('/far/crowd', '1min', 't'), '>', 800, 'a long list takes its time');
show('a list of 40,000 names: ahead', my $ahead = $watcher->answer);
cmp_ok($ahead, '>', 1, 'meanwhile, the server knows that its session lives');
is($node_a->status('connects'), $connects, 'and the connection lasts');
$_->quit foreach $far, $other, $watcher;
$_->stop foreach $node_a, $node_b;
done_testing();
