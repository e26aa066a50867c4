
=head1 NAME

FaultSchedule - from a seed, which faults happen when, and with which settings

=head1 SYNOPSIS

	my $schedule = FaultSchedule->new(17, 30);
	print "$_->{at} $_->{kind} $_->{what} $_->{for}\n" foreach @{ $schedule->{faults} };

Pure: the same seed and seconds give the same schedule in the same environment, which
F<test/faults/run> lists.  C<settings> are those of the servers (C<tenure>, C<linger> of each,
C<margin>, C<timeout>, C<connection>, in ms; ZooKeeper's C<tick>; C<skew>, by how many seconds the
clock of each is wrong: up to 10, or years; C<jobs>, the share of jobs among what clients do).
C<faults> are in order of their time: C<at> and C<for> are seconds, C<what> names
the process or server, and C<number> the fault itself.

=over

=item zk.pause, zk.kill

C<leader>, C<follower>, or C<two> of them: stands still; is killed and started again.

=item worker.pause, worker.terminate, worker.kill

Of one PostgreSQL server.

=item backend.pause, backend.terminate, backend.kill

Of a client of this server.

=item server.pause, server.kill, postmaster.kill

All processes of a server stand still, as if the machine slept; are killed, and the server
is started again; only the postmaster is killed, and the rest when the server is to be
started again.

=item net.cut, net.hole, net.oneway, net.delay, net.reset

Between the two that are named, or between one and all others (C<*>).  ZooKeeper's leader
and followers are C<leader> and C<follower>; C<home:a> is the one that server a is
connected to.  One way is from the first to the second.

=item session.end, lock.force

A user ends the server's ZooKeeper session; takes a lock away from its holders.

=back

Some faults are a chain: they follow one another within a session timeout, on the same way
from a server to ZooKeeper's leader.  At the end of each, the member that the server is
connected to is cut off, before it can tell the leader what has happened since.

=cut

package FaultSchedule;

use strict;
use warnings;

# How often each fault comes, relative to the others; and whose processes it concerns.
our %kinds = (
	'zk.pause' => [ 6, 'zk' ],
	'zk.kill' => [ 3, 'zk' ],
	'worker.pause' => [ 6, 'node' ],
	'worker.terminate' => [ 3, 'node' ],
	'worker.kill' => [ 1, 'node' ],
	'backend.pause' => [ 8, 'node' ],
	'backend.terminate' => [ 6, 'node' ],
	'backend.kill' => [ 1, 'node' ],
	'server.pause' => [ 3, 'node' ],
	'server.kill' => [ 2, 'node' ],
	'postmaster.kill' => [ 1, 'node' ],
	'net.cut' => [ 8, 'net' ],
	'net.hole' => [ 8, 'net' ],
	'net.oneway' => [ 8, 'net' ],
	'net.delay' => [ 4, 'net' ],
	'net.reset' => [ 4, 'net' ],
	'session.end' => [ 1, 'none' ],
	'lock.force' => [ 1, 'none' ]);

our @nodes = ('a' .. 'z')[ 0 .. ($ENV{FAULT_SERVERS} // 3) - 1 ];
our @members = 1 .. ($ENV{FAULT_ZOOKEEPERS} // 3);

sub _pick { return $_[ rand @_ ]; }

sub new
{
	my ($class, $seed, $seconds) = @_;
	srand $seed;
	my $self = bless { seed => $seed, seconds => $seconds }, $class;

	my $timeout = _pick(1500, 2000, 3000, 4000);
	$self->{settings} = {
		timeout => $timeout,
		tenure => _pick(0, 0, 100, 3_600_000),
		linger => { map { $_ => _pick(0, 1000, 3_600_000) } @nodes },
		margin => _pick(100, 100, 500),
		connection => _pick(1000, 3000, 10_000),
		synchronous => _pick('off', 'off', 'on') };
	my @faults = $self->_faults($timeout / 1000);

	# The longest tick that the timeout allows makes the leader hear of a session late.
	my $tick = $self->{settings}{tick} = _pick(300, 300, $timeout < 2000 ? $timeout / 2 : 1000);
	my $nchains = @faults ? 1 + int rand(($ENV{FAULT_MOST} // $seconds) / 10) : 0;
	push @faults, map { _chain($seconds, $timeout / 1000, $tick / 1000) } 1 .. $nchains;
	@faults = sort { $a->{at} <=> $b->{at} } @faults;
	splice @faults, $ENV{FAULT_MOST} if $ENV{FAULT_MOST} && @faults > $ENV{FAULT_MOST};
	$self->{faults} = _shrunk(@faults);
	$self->{settings}{skew} = _skew();
	$self->{settings}{jobs} = _pick(0.2, 0.4, 0.8);
	return $self;
}

# A part of the schedule, which still fails as the whole one did.
sub _shrunk
{
	my (@faults) = @_;
	$faults[$_]{number} = $_ + 1 foreach 0 .. $#faults;
	@faults = grep { $_->{at} < $ENV{FAULT_UNTIL} } @faults if $ENV{FAULT_UNTIL};
	my %only = map { $_ => 1 } split /,/, $ENV{FAULT_ONLY} // '';
	@faults = grep { $only{ $_->{number} } } @faults if %only;
	return \@faults;
}

sub _skew
{
	my %skew = map { $_ => -10 + int rand 21 } @nodes;
	$skew{ _pick(@nodes) } = _pick(-1, 1) * int(31_557_600 * (1 + rand 9)) if rand() < 0.4;
	return \%skew;
}

sub _chain
{
	my ($seconds, $timeout, $tick) = @_;
	my $node = _pick(@nodes);
	my $stall = sub { $timeout * (0.35 + rand 0.31) };
	my $short = sub { $timeout * (0.1 + rand 0.2) };
	my $links = _pick(
		[ [ 'worker.pause', $node, $stall->() ] ],
		[ [ 'worker.pause', $node, $short->() ], [ 'worker.pause', $node, $short->() ] ],
		[ [ 'net.hole', "$node home:$node", $stall->() ] ],
		[ [ 'net.reset', "$node *", 0 ] ],
		[ [ 'zk.pause', 'leader', $stall->() ] ]);

	my $at = 3 + rand($seconds - 6);
	my @chain;
	foreach (@$links, [ 'net.hole', "home:$node *", $timeout + 1 + rand 1 ])
	{
		my ($kind, $what, $for) = @$_;
		push @chain, { at => $at, kind => $kind, what => $what, for => $for, detail => 2 * int rand 500 };
		$at += $for + rand($tick / 2);
	}
	return @chain;
}

# Each run has its own mixture: faults that never happen leave room for the others.  A few runs have
# no faults at all, to judge the order among servers.
sub _faults
{
	my ($self, $timeout) = @_;
	my %weight = map { $_ => $kinds{$_}[0] } grep { rand() < 0.6 } sort keys %kinds;
	return () if rand() < 0.07;
	my $gap = _pick(0.2, 0.4, 1);
	$gap = $self->{seconds} / $ENV{FAULT_MOST} if $ENV{FAULT_MOST};
	my (%free, @faults);
	my $at = 3;

	while (%weight && $at < $self->{seconds} - 2)
	{
		my $kind = _weighted(\%weight);
		my $length = _pick(rand 0.3, rand 0.3, rand $timeout, rand $timeout, $timeout + rand 2);
		my @what = _what($kind);
		my $needs = $kinds{$kind}[1] eq 'node' ? $what[0] : $kinds{$kind}[1];

		# A process that stands still cannot be killed in order, and three cuts at a time are
		# nothing but a cluster that is away.
		$needs = 'net' . int rand 2 if $needs eq 'net';
		if ($needs eq 'none' || ($free{$needs} // 0) <= $at)
		{
			$free{$needs} = $at + $length + 0.3;
			push @faults, { at => $at, kind => $kind, what => "@what", for => $length, detail => int rand 1000 };
		}
		$at += rand(2 * $gap);
		$at += 3 if rand() < 0.03;
	}
	return @faults;
}

sub _weighted
{
	my ($weight) = @_;
	my $sum = 0;
	$sum += $_ foreach values %$weight;
	my $at = rand $sum;
	foreach (sort keys %$weight)
	{
		return $_ if ($at -= $weight->{$_}) < 0;
	}
	return (sort keys %$weight)[0];
}

sub _what
{
	my ($kind) = @_;
	return _pick(qw(leader leader follower follower two)) if $kind =~ /^zk/;
	return _pick(@nodes) unless $kind =~ /^net/;

	my $member = _pick(@members, 'leader', 'follower');
	my @pair = _pick([ _pick(@nodes), $member ], [ _pick(@nodes), '*' ],
		[ _pick('leader', 'follower', @members), '*' ], [ 'leader', 'follower' ]);
	@pair = @{ $pair[0] };
	return rand() < 0.5 ? @pair : reverse @pair;
}

1;
