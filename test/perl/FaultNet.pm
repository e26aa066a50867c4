
=head1 NAME

FaultNet - a network between servers that can be cut, held up and slowed down

=head1 SYNOPSIS

	my $net = FaultNet->new;
	my $address = $net->link('a', '1', '127.0.0.1:2181');	# by which a reaches 1
	$net->run;

	$net->set('a', '1', 'hold');		# what a sends to 1 does not arrive: a one-way cut
	$net->set('1', 'a', 'delay', 50);	# what 1 sends to a takes 50 ms longer
	$net->set('1', 'a', 'delay', 25, 20);	# ... 25 ms, on a line of 20 Mbit/s
	$net->set('a', '1', 'cut');			# connections end, and there are no new ones
	$net->set('a', '1', 'open');

All links are proxies in one process.  A link sends packets that were held up when it is open
again, as TCP would do it; if the connection ends meanwhile, they are lost.

=cut

package FaultNet;

use strict;
use warnings;

use Carp;
use IO::Handle;
use IO::Select;
use IO::Socket::INET;
use POSIX ();
use Socket qw(:DEFAULT IPPROTO_TCP TCP_NODELAY);
use Time::HiRes qw(CLOCK_MONOTONIC clock_gettime);

=head1 METHODS

=over

=item FaultNet->new

=item $net->link($from, $to, $target, sub { ... })

Listen for the connections of C<$from> to C<$to>, which is at C<$target>, and return the
address.  Before C<run>.  The function may change the first bytes that C<$from> sends on a
connection.

=item $net->link_members($zk)

Let the servers of an ensemble reach one another through the net.  Before C<run>, and before
they are started.

=item $net->link_nodes($one, $other)

Let two PostgreSQL servers follow one another through the net.  Returns, by the name of each, how it
reaches the other one, for C<< $node->follow >>.  Before C<run>.

=item $net->run

Start the process that connects the servers.  It ends with the test.

=item $net->set($from, $to, $mode, $ms, $mbit)

How the packets of C<$from> travel to C<$to>, whichever of them made the connection: C<open>,
C<hold>, C<cut> (which concerns both ways) or C<delay>, perhaps with a number of Mbit/s that all
connections on this way have together.  Then, what has not yet been sent waits in the sockets of the
sender, but for a tenth of a second's worth.  May be called by forked processes, too.  Does not wait for the
change.

=item $net->set_far($one, $other, $ms, $mbit)

The same both ways, with this round trip.

=item $net->reset($from, $to)

End the connections between the two.  New ones are let pass.

=back

=cut

sub new
{
	my ($class) = @_;
	return bless { links => [] }, $class;
}

sub link
{
	my ($self, $from, $to, $target, $edit) = @_;
	my $listener = IO::Socket::INET->new(Listen => 64, LocalAddr => '127.0.0.1')
	  or croak "could not listen: $!";
	push @{ $self->{links} },
	  { from => $from, to => $to, target => $target, edit => $edit, listener => $listener };
	return '127.0.0.1:' . $listener->sockport;
}

# When one member connects to another for an election, it sends the address at which it wants to be
# reached, which has to be in the net as well.
sub link_members
{
	my ($self, $zk) = @_;
	my @members = 1 .. $zk->{servers};
	my (%election, %line);
	foreach my $i (@members)
	{
		foreach my $j (grep { $_ ne $i } @members)
		{
			my ($host, $quorum, $election, @role) = split /:/, $zk->setting($i, "server.$j");
			my $own = (split /:/, $zk->setting($i, "server.$i"))[2];
			my $edit = sub { $_[0] =~ s/127\.0\.0\.1:$own\b/$election{"$j$i"}/r };
			$quorum = $self->link($i, $j, "127.0.0.1:$quorum");
			$election = $election{"$i$j"} = $self->link($i, $j, "127.0.0.1:$election", $edit);
			$line{$i}{$j} = join ':', $quorum, (split /:/, $election)[1], @role;
		}
	}
	foreach my $i (@members)
	{
		$zk->set_setting($i, "server.$_", $line{$i}{$_}) foreach keys %{ $line{$i} };
	}
	return;
}

sub link_nodes
{
	my ($self, $one, $other) = @_;
	my %upstream;
	foreach ([ $one, $other ], [ $other, $one ])
	{
		my ($from, $to) = @$_;
		my ($port) = $self->link($from->name, $to->name, '127.0.0.1:' . $to->port) =~ /:(\d+)$/;
		$upstream{ $from->name } = "host=127.0.0.1 port=$port user=postgres application_name=" . $from->name;
	}
	return %upstream;
}

sub run
{
	my ($self) = @_;
	socketpair(my $ours, my $its, AF_UNIX, SOCK_STREAM, PF_UNSPEC)
	  or croak "could not make a socket pair: $!";
	$self->{pid} = fork // croak "could not fork: $!";
	if (!$self->{pid})
	{
		CORE::close $ours;
		eval { _serve($its, $self->{links}); 1 } or print STDERR "FaultNet: $@";
		POSIX::_exit(0);
	}
	CORE::close $its;
	CORE::close $_->{listener} foreach @{ $self->{links} };
	$self->{control} = $ours;
	return;
}

sub set { my ($self, @words) = @_; return $self->_tell('set', @words); }

sub set_far
{
	my ($self, $one, $other, $ms, $mbit) = @_;
	$self->set(@$_, 'delay', $ms / 2, $mbit // ()) foreach [ $one, $other ], [ $other, $one ];
	return;
}

sub reset { my ($self, @words) = @_; return $self->_tell('reset', @words); }

# One write, so that those of several processes do not mix.
sub _tell
{
	my ($self, @words) = @_;
	defined syswrite $self->{control}, "@words\n" or croak "the network has died: $!";
	return;
}

# --- the other process ---

# Each connection is two streams, each of which knows the other as its back.  A stream reads from
# one socket and writes to another.
my (%mode, %stream_of, %links);
my %idle_at;		# when a way with a rate has sent all that was read
my $BUFFER = 0.1;	# seconds
my $select_writable = IO::Select->new;

sub _now { return clock_gettime(CLOCK_MONOTONIC); }
sub _mode { my ($stream) = @_; return $mode{ $stream->{way} } // { name => 'open' }; }

sub _serve
{
	my ($control, $links) = @_;
	$SIG{PIPE} = 'IGNORE';
	$SIG{TERM} = 'DEFAULT';
	%links = map { $_->{listener} => $_ } @$links;
	my @listeners = map { $_->{listener} } @$links;

	while (1)
	{
		my $now = _now();
		my $next = $now + 10;
		my ($reads, $writes) = ('', '');
		my @streams = values %stream_of;
		vec($reads, fileno $_, 1) = 1 foreach $control, @listeners;
		foreach my $stream (@streams)
		{
			my $name = _mode($stream)->{name};
			if (@{ $stream->{queue} } && $name ne 'hold')
			{
				my $due = $stream->{queue}[0]{due};
				if ($due <= $now) { vec($writes, fileno $stream->{to}, 1) = 1; }
				elsif ($due < $next) { $next = $due; }
			}
			next if $name eq 'hold' || @{ $stream->{queue} } >= 200;
			my $room_at = ($idle_at{ $stream->{way} } // 0) - $BUFFER;
			if ($room_at <= $now) { vec($reads, fileno $stream->{from}, 1) = 1; }
			elsif ($room_at < $next) { $next = $room_at; }
		}
		select $reads, $writes, undef, $next - $now;

		foreach my $stream (@streams)
		{
			_write($stream) if defined fileno $stream->{to} && vec $writes, fileno $stream->{to}, 1;
		}
		foreach my $stream (@streams)
		{
			_read($stream) if defined fileno $stream->{from} && vec $reads, fileno $stream->{from}, 1;
		}
		foreach my $listener (@listeners)
		{
			_connect($listener) if vec $reads, fileno $listener, 1;
		}
		_obey($control) if vec $reads, fileno $control, 1;
	}
}

sub _obey
{
	my ($control) = @_;
	sysread($control, my $text, 65536) or POSIX::_exit(0);
	foreach (split /\n/, $text)
	{
		my ($command, $from, $to, $name, $ms, $mbit) = split / /;
		$mode{"$from>$to"} = { name => $name, delay => ($ms // 0) / 1000, rate => ($mbit // 0) * 1e6 / 8 } if $command eq 'set';
		next unless $command eq 'reset' || $name eq 'cut';
		my @ended = grep { $_->{way} eq "$from>$to" || $_->{way} eq "$to>$from" } values %stream_of;
		_hang_up($_) foreach @ended;
	}
	return;
}

sub _is_cut
{
	my ($from, $to) = @_;
	return grep { $mode{$_} && $mode{$_}{name} eq 'cut' } "$from>$to", "$to>$from";
}

sub _connect
{
	my ($listener) = @_;
	my $link = $links{$listener};
	my $client = $listener->accept or return;
	return CORE::close $client if _is_cut($link->{from}, $link->{to});

	# A stopped process does not accept, and no other process must wait for that.
	my $server = IO::Socket::INET->new(PeerAddr => $link->{target}, Blocking => 0)
	  or return CORE::close $client;
	$client->blocking(0);
	setsockopt $_, IPPROTO_TCP, TCP_NODELAY, 1 foreach $client, $server;
	my $there = { from => $client, to => $server, way => "$link->{from}>$link->{to}",
		queue => [], edit => $link->{edit} };
	my $back = { from => $server, to => $client, way => "$link->{to}>$link->{from}",
		queue => [], back => $there };
	$there->{back} = $back;
	$stream_of{$client} = $there;
	$stream_of{$server} = $back;
	return;
}

sub _read
{
	my ($stream) = @_;
	my $mode = _mode($stream);
	my $n = sysread $stream->{from}, my $data, $mode->{rate} ? 4096 : 65536;
	return if !defined $n && ($!{EAGAIN} || $!{ENOTCONN});
	return _hang_up($stream) unless $n;
	$data = (delete $stream->{edit})->($data) if $stream->{edit};
	my $sent = _now();
	if ($mode->{rate})
	{
		my $begin = $idle_at{ $stream->{way} } // 0;
		$sent = $idle_at{ $stream->{way} } = ($begin > $sent ? $begin : $sent) + length($data) / $mode->{rate};
	}
	push @{ $stream->{queue} }, { due => $sent + ($mode->{delay} // 0), data => $data };
	return;
}

sub _write
{
	my ($stream) = @_;
	while (@{ $stream->{queue} } && $stream->{queue}[0]{due} <= _now())
	{
		my $first = $stream->{queue}[0];
		my $n = syswrite $stream->{to}, $first->{data};
		return if !defined $n && $!{EAGAIN};
		return _hang_up($stream) unless defined $n;
		substr($first->{data}, 0, $n) = '';
		return if length $first->{data};
		shift @{ $stream->{queue} };
	}
	return;
}

sub _hang_up
{
	my ($stream) = @_;
	foreach my $end ($stream->{from}, $stream->{to})
	{
		my $dead = delete $stream_of{$end};
		delete $dead->{back} if $dead;		# a circle
		CORE::close $end;
	}
	return;
}

1;
